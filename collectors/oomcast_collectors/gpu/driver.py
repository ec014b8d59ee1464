"""What the gpu collector asks of a driver library: a narrow protocol, plain values in base units, one exception.

Any call may take milliseconds or never return, so nothing here is called from a collector's run or from a scrape:
relay.py has the threads that may hang.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Fault = Literal[
    "unsupported",  # this device will never answer this question: do not ask again
    "transient",  # no answer this time
    "lost",  # the GPU fell off the bus
    "reset_required",
    "not_permitted",
    "session",  # handles are void: the library has to be initialised anew
    "mismatch",  # the kernel's driver is another version than the library in this process, which cannot be unloaded
    "no_driver",  # no library, or the kernel's module is not loaded
]

OF_LIBRARY: frozenset[Fault] = frozenset({"session", "mismatch", "no_driver"})
"""What is no fault of one GPU."""


class DriverError(Exception):
    """A call failed. function: as NVML names it; code: NVML's return code."""

    def __init__(self, fault: Fault, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text} ({code})")
        self.fault = fault
        self.function = function
        self.code = code


class Memory(NamedTuple):
    """Bytes. v2: used + free + reserved = total. reserved None (v1): used contains it, and used + free = total."""

    total: int
    used: int
    free: int
    reserved: int | None


class Utilization(NamedTuple):
    """As the driver gives them, averaged over its last 1/6 to 1 s: 0 to 1, and beyond where it gives garbage.

    gpu: share of time in which a kernel ran. copy: share in which device memory was read or written. None: not told.
    """

    gpu: float | None
    copy: float | None


@dataclass(frozen=True, slots=True)
class Identity:
    """pci: as sysfs has it, 0000:3b:00.0. memory_api: v1, v2, or "" where memory is not supported at all.
    addressing: none, hmm or ats; "" where the driver does not tell. persistence: None where it does not tell."""

    uuid: str
    index: int
    name: str
    pci: str
    memory_api: str
    addressing: str
    persistence: bool | None
    mig: bool


class ProcessMemory(NamedTuple):
    """used: bytes, None where the driver does not tell. instance: the MIG GPU instance, None on a whole GPU."""

    pid: int
    used: int | None
    instance: int | None


class XidSeen(NamedTuple):
    """uuid: of the GPU; "" where the driver does not tell whose. xid: 999 is one that NVML has no number for."""

    uuid: str
    xid: int


Field = Literal[
    "power_watts",
    "power_limit_watts",
    "energy_joules",
    "temperature_celsius",
    "memory_temperature_celsius",
    "sm_clock_hertz",
    "memory_clock_hertz",
    "ecc_corrected",  # since the driver was loaded
    "ecc_uncorrected",
    "remapped_rows_correctable",  # over the life of the GPU
    "remapped_rows_uncorrectable",
    "remap_pending",  # 0 or 1
    "remap_failed",
    "recovery_action",  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: 0 none, 1 gpu_reset ..
    "pcie_tx_bytes",  # counters; not nvmlDeviceGetPcieThroughput, which sleeps 20 ms
    "pcie_rx_bytes",
    "nvlink_tx_bytes",  # all links together
    "nvlink_rx_bytes",
]


class Instance(Protocol):
    """A MIG GPU instance. uuid: of its first MIG device. profile: 3g.71gb, "" where the driver does not tell."""

    uuid: str
    instance: int
    profile: str

    def memory(self) -> Memory: ...


class Device(Protocol):
    """A handle of one GPU; void once the library was closed."""

    uuid: str

    def memory(self) -> Memory: ...

    def utilization(self) -> Utilization: ...

    def identity(self) -> Identity: ...

    def fields(self, wanted: Sequence[Field]) -> Mapping[Field, float | DriverError]:
        """All of `wanted`, each with its value or why there is none; raises only what is about the whole GPU."""

    def processes(self) -> Sequence[ProcessMemory]:
        """One entry for each pid and instance, the largest where several lists have it."""

    def accounting(self) -> Mapping[int, int]:
        """Most memory that each process had, ended ones too, by pid: bytes; raises `unsupported` where the mode is
        off, which is not ours to change."""

    def instances(self) -> Sequence[Instance]:
        """The MIG GPU instances of now; none where MIG is off."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A GPU that is counted but gives no handle. uuid: "" where it is not known."""

    index: int
    uuid: str
    error: DriverError


class Xids(Protocol):
    def wait(self, seconds: float) -> XidSeen | None:
        """The next event of any GPU, None after `seconds`. An event is only seen if it came after the making."""

    def close(self) -> None: ...


class Driver(Protocol):
    """One library. Every call of one that is closed, or fails, raises DriverError."""

    def open(self) -> None:
        """Initialises; may take seconds. Raises `no_driver` without a library or a loaded module."""

    def close(self) -> None:
        """Only while no other call is under way: the library crashes otherwise."""

    def version(self) -> str:
        """Of the driver: 580.95.05."""

    def outdated(self) -> bool:
        """Whether the library's file is another one than was loaded: only a new process can load it."""

    def devices(self) -> tuple[Sequence[Device], Sequence[Missing]]: ...

    def device(self, uuid: str) -> Device: ...

    def xids(self, devices: Sequence[Device]) -> Xids:
        """Events of those `devices` that have any; raises `unsupported` when none has."""
