"""A driver of NVIDIA GPUs that a test scripts: the library of tests/fake_nvml and its state file.

    driver.gpus[0].set(used=8 << 30, proc=[(4242, 8 << 30), (4243, "NA")])
    driver.gpus[1].set({"fail.nvmlDeviceGetMemoryInfo_v2": 999}, hang=1)
    driver.set(freeze=1, absent=["nvmlDeviceGetTemperatureV"])
    driver.write()                                # from here on every process sees it, atomically
    subprocess.run(program, env=os.environ | driver.environment)

The keys are those of tests/fake_nvml/README.md.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "fake_nvml"
LIBRARY = "libnvidia-ml.so.1"

Item = str | int | float | tuple[str | int | float, ...]
Value = Item | Sequence[Item] | None


class Section:
    """Keys with their values. A tuple is one value of several parts, a list is one line each, None takes a key away."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}

    def set(self, values: Mapping[str, Value] | None = None, /, **more: Value) -> None:
        """Changes some keys and keeps the others; nothing happens before `FakeDriver.write`."""
        for key, value in {**(values or {}), **more}.items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value

    def lines(self) -> Iterator[str]:
        for key, value in self.values.items():
            for item in value if isinstance(value, list) else [value]:
                yield f"{key}={','.join(map(str, item)) if isinstance(item, tuple) else item}"


class FakeDriver(Section):
    """library: as built by `build`. directory: where the state file goes, and nothing else."""

    def __init__(self, directory: Path, library: Path, gpus: int = 1) -> None:
        super().__init__()
        self.library = library
        self.state = directory / "nvml.state"
        self.gpus: list[Section] = [Section() for _ in range(gpus)]
        self.write()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to load this driver as the machine's."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML_STATE": str(self.state)}

    def write(self) -> None:
        """Makes what was set the state of the driver, for all processes and with their next call."""
        text = list(self.lines())
        for number, gpu in enumerate(self.gpus):
            text += [f"[gpu {number}]", *gpu.lines()]
        aside = self.state.with_suffix(".new")
        aside.write_text("\n".join([*text, ""]))
        aside.replace(self.state)

    def remove(self) -> None:
        """Takes the state file away: the driver stays as it is, a new process finds one without GPUs."""
        self.state.unlink()


def uuid(number: int) -> str:
    """The UUID of GPU `number` unless it was set."""
    return f"GPU-00000000-0000-4000-8000-{number:012d}"


def build(directory: Path) -> Path:
    """Compiles the library into `directory`; takes a second. Raises CalledProcessError."""
    library = directory / LIBRARY
    sources = sorted(map(str, SOURCES.glob("*.c")))
    options = ["-shared", "-fPIC", "-fvisibility=hidden", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *options, "-o", os.fspath(library), *sources, "-lpthread"], check=True)
    return library
