"""Memory of a GPU that is taken and given back at will: through CUDA's own library, or as the scripted driver says."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from collectors.gpu.driver import FakeDriver, build, uuid


class CudaError(Exception):
    """CUDA is not there, or a call of it failed."""


class GpuMemory(Protocol):
    """uuid: of its GPU."""

    uuid: str

    def take(self, size: int) -> None:
        """Bytes more, from any thread. Raises CudaError."""

    def give_back(self) -> None:
        """What was taken last."""

    def copy_in(self, size: int) -> None:
        """Bytes from the host over PCIe into what was taken last, no more than that has."""


class CudaMemory:
    """On CUDA's first GPU. Raises CudaError where there is none."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"no CUDA: {error}") from error
        self._blocks: list[ctypes.c_uint64] = []
        device, context, raw = ctypes.c_int(), ctypes.c_void_p(), (ctypes.c_ubyte * 16)()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDeviceGetUuid", raw, device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context
        digits = bytes(raw).hex()
        self.uuid = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def take(self, size: int) -> None:
        block = ctypes.c_uint64()
        self._enter()
        self._call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
        self._blocks.append(block)

    def give_back(self) -> None:
        self._enter()
        self._call("cuMemFree_v2", self._blocks.pop())

    def copy_in(self, size: int) -> None:
        self._enter()
        self._call("cuMemcpyHtoD_v2", self._blocks[-1], ctypes.create_string_buffer(size), ctypes.c_size_t(size))

    def _enter(self) -> None:
        self._call("cuCtxSetCurrent", self._context)  # of each thread of ours

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            raise CudaError(f"{function}: error {code}")


class ScriptedMemory:
    """On the first GPU of `driver`, held by this process. library: where the driver is."""

    def __init__(self, driver: FakeDriver) -> None:
        self.uuid = uuid(0)
        self.library = driver.library
        self._driver = driver
        self._blocks: list[int] = []
        self._copied = 0
        self._write()

    def take(self, size: int) -> None:
        self._blocks.append(size)
        self._write()

    def give_back(self) -> None:
        self._blocks.pop()
        self._write()

    def copy_in(self, size: int) -> None:
        self._copied += size
        self._write()

    def _write(self) -> None:
        used = (1 << 29) + sum(self._blocks)
        self._driver.gpus[0].set(used=used, proc=[(os.getpid(), used)], pcie_rx_bytes=self._copied)
        self._driver.write()


@contextmanager
def scripted_memory() -> Iterator[ScriptedMemory]:
    """Of a driver with one GPU that this process, and those that it starts, take for the machine's."""
    with tempfile.TemporaryDirectory(prefix="oomcast-bench-") as name:
        driver = FakeDriver(Path(name), build(Path(name)))
        os.environ.update(driver.environment)
        yield ScriptedMemory(driver)
