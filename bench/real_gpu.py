"""One pass over what only a real NVIDIA GPU can tell, in about two minutes: `bench/real_gpu.py [DIRECTORY]`.

From the checkout, with the packages in a folder that is made beforehand by the same version of Python, 25 MB:

    python3 -m pip install --target SITE -c constraints.txt .
    PYTHONPATH=daemon:collectors:tests:SITE python3 bench/real_gpu.py

Takes neither network nor root, and nothing of CUDA but libcuda.so.1; without that it goes on with NVML alone. Prints
what it finds, and writes that and a capture of the driver's answers to real_gpu.json (and nvidia-smi.xml) in DIRECTORY,
by default $OUT or the present one. It fills a GPU to 92 %. --fake runs it on the tests' scripted driver.
"""

import argparse
import contextlib
import os
import sys
import threading
import time
from pathlib import Path

from pynvml import NVMLError

from gpu_capture import capture, counters
from gpu_memory import CudaError, CudaMemory, GpuMemory, ScriptedMemory, scripted_memory
from machine import daemon, describe, get
from oomcast_collectors.gpu.driver import Device, DriverError
from oomcast_collectors.gpu.nvml import Nvml
from record import Found, NotMeasured, Record

_GIB = 1 << 30
_CALLS = 5000
_QUANTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
_SPIKES = ((0.05, 4 * _GIB), (0.2, 6 * _GIB), (0.5, 8 * _GIB))
"""Seconds and bytes; each is higher than the last, which the window still holds."""

_SETTLED = 1.5
_WINDOW = 15
_STEP_PAUSE = 0.1
_STEPS = 256
_FULL = 0.92
_LONGEST_RAMP = 90.0


class Pass:
    """device: the GPU that is looked at. memory: None without CUDA. port: of the daemon, None if it did not start."""

    def __init__(self, device: Device, memory: GpuMemory | None) -> None:
        self.device = device
        self.memory = memory
        self.port: int | None = None

    def idle_calls(self) -> Found:
        """What a reading of memory takes: microseconds."""
        return self._calls()

    def busy_calls(self) -> Found:
        """The same while another thread allocates and frees a gibibyte in turn."""
        memory, done, rounds = self._memory(), threading.Event(), [0]

        def churn() -> None:
            while not done.is_set():
                memory.take(_GIB)
                memory.give_back()
                rounds[0] += 1

        thread = threading.Thread(target=churn, name="churn", daemon=True)
        thread.start()
        try:
            return {**self._calls(), "allocations": rounds[0]}
        finally:
            done.set()
            thread.join(10)

    def pcie_counters(self) -> Found:
        """Fields 197 and 198 before and after half a gibibyte came in over PCIe: their types, and how they grow."""
        memory, size = self._memory(), _GIB // 2
        memory.take(size)
        before = counters(self.device.uuid)
        memory.copy_in(size)
        time.sleep(_SETTLED)
        after = counters(self.device.uuid)
        memory.give_back()
        return {"copied": size, "before": before, "after": after}

    def spikes(self) -> Found:
        """Whether the daemon's peak shows each."""
        memory = self._memory()
        found: Found = {}
        for width, size in _SPIKES:
            base = self.device.memory().used
            memory.take(size)
            began = time.monotonic()
            time.sleep(width)
            memory.give_back()
            lasted = time.monotonic() - began
            time.sleep(_SETTLED)
            peak = self._told("oomcast_gpu_memory_used_peak_bytes") or 0.0
            seen = abs(peak - base - size) <= 0.05 * size
            found[f"{width * 1e3:.0f} ms"] = {"seen": seen, "seconds": round(lasted, 4), "rise": peak - base}
        return found

    def sampling(self) -> Found:
        """The period that the daemon reaches, in seconds, over its whole window."""
        time.sleep(_WINDOW)
        names = ("sampling_period_seconds", "sampling_largest_gap_seconds", "memory_call_seconds_total")
        return {name: self._told(f"oomcast_gpu_{name}") for name in names}

    def attribution(self) -> Found:
        """What the driver's list and the daemon say that this process holds."""
        memory, pid = self._memory(), os.getpid()
        memory.take(2 * _GIB)
        time.sleep(2 * 2.0 + _SETTLED)  # two of the daemon's looks at processes
        listed = [process._asdict() for process in self.device.processes()]
        told = self._told("oomcast_gpu_process_memory_bytes", pid=str(pid))
        memory.give_back()
        return {"pid": pid, "taken": 2 * _GIB, "driver": listed, "daemon": told}

    def ramp(self) -> Found:
        """Each second: seconds since it began, bytes in use, seconds left by the mean rate so far, and as forecast."""
        memory, start = self._memory(), self.device.memory()
        usable = start.total - (start.reserved or 0)
        rows: list[list[float | None]] = []
        began, taken = time.monotonic(), 0
        try:
            while (passed := time.monotonic() - began) < _LONGEST_RAMP:
                used = self.device.memory().used
                if used >= _FULL * usable:
                    break
                if passed >= len(rows) + 1:
                    left = (usable - used) / max((used - start.used) / passed, 1.0)
                    forecast = self._told("oomcast_time_to_exhaustion_seconds", resource="gpu_memory")
                    rows.append([round(passed, 2), used, round(left, 2), forecast])
                memory.take(start.total // _STEPS)
                taken += 1
                time.sleep(_STEP_PAUSE)
        except CudaError as error:
            return {"rows": rows, "ended": str(error)}
        finally:
            for _ in range(taken):
                memory.give_back()
        return {"rows": rows}

    def _calls(self) -> Found:
        taken = []
        for _ in range(_CALLS):
            began = time.perf_counter()
            self.device.memory()
            taken.append((time.perf_counter() - began) * 1e6)
        taken.sort()
        return {name: round(taken[int(at * (_CALLS - 1))], 1) for name, at in _QUANTILES}

    def _memory(self) -> GpuMemory:
        if self.memory is None:
            raise NotMeasured("there is no CUDA to allocate with")
        return self.memory

    def _told(self, name: str, **labels: str) -> float | None:
        """A series of the GPU in the daemon's text; None if it has none."""
        if self.port is None:
            raise NotMeasured("the daemon does not run")
        wanted = [f'{key}="{value}"' for key, value in {"gpu": self.device.uuid, **labels}.items()]
        for line in get(self.port)[1].decode().splitlines():
            if line.startswith(f"{name}{{") and all(pair in line for pair in wanted):
                return float(line.rpartition(" ")[2])
        return None


def main() -> int:
    arguments = _arguments()
    print(describe(), flush=True)
    with contextlib.ExitStack() as stack:
        memory: GpuMemory | None = stack.enter_context(scripted_memory()) if arguments.fake else _cuda()
        nvml = Nvml(str(memory.library)) if isinstance(memory, ScriptedMemory) else Nvml()
        try:
            nvml.open()
            devices, missing = nvml.devices()
        except DriverError as error:
            print(f"no driver, nothing to measure: {error}")
            return 1
        for one in missing:
            print(f"GPU {one.index} gives no handle: {one.error}")
        device = next((one for one in devices if memory is None or one.uuid == memory.uuid), None)
        if device is None:
            print("there is no GPU, or none that CUDA has too")
            return 1
        _measure(Pass(device, memory), arguments.directory)
    return 0


def _measure(one: Pass, directory: Path) -> None:
    record = Record(directory / "real_gpu.json", (CudaError, DriverError, NVMLError, OSError))
    record.step("capture", lambda: capture(one.device, directory), show=False)
    record.step("memory call, idle: us", one.idle_calls)
    settings = {"OOMCAST_COLLECTORS__GPU__WINDOW": str(_WINDOW), "OOMCAST_COLLECTORS__GPU__LOAD_GRACE": "0"}
    with contextlib.ExitStack() as stack:
        try:
            _, one.port = stack.enter_context(daemon(settings))
        except (OSError, TimeoutError) as error:
            print(f"the daemon did not start: {error}", flush=True)
        record.step("PCIe counters", one.pcie_counters)
        record.step("memory call, while allocating: us", one.busy_calls)
        record.step("spikes", one.spikes)
        record.step("sampling", one.sampling)
        record.step("attribution", one.attribution)
        record.step("ramp", one.ramp)


def _cuda() -> CudaMemory | None:
    try:
        return CudaMemory()
    except CudaError as error:
        print(f"nothing will be allocated: {error}", flush=True)
        return None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--fake", action="store_true", help="on the scripted driver")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
