"""A driver in Python for the tests of what calls it: each of its functions can fail, or not come back."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from oomcast.clock import Clock, SystemClock
from oomcast_collectors.gpu.driver import (
    Device,
    DriverError,
    Fault,
    Field,
    Identity,
    Instance,
    Memory,
    Missing,
    ProcessMemory,
    Utilization,
    Xids,
    XidSeen,
)

GIB = 1 << 30
_GIVEN_UP = 30.0


class RunningClock(SystemClock):
    """Goes by itself, and can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    def time(self) -> float:
        return super().time() + self.ahead


def error(fault: Fault, function: str = "nvmlDeviceGetCount") -> DriverError:
    return DriverError(fault, function, 999, fault)


class FakeLibrary:
    """See driver.Driver. failing: by function, or by (function, uuid). calls: how many of each there were. memory: of
    each GPU. working: called with each reading of it.

    unsafe: whether it was ever closed with a call inside, which crashes a real one.
    """

    def __init__(self, *uuids: str, clock: Clock) -> None:
        self._clock = clock
        self.uuids = list(uuids)
        self.missing: list[Missing] = []
        self.memory = Memory(80 * GIB, 30 * GIB, 49 * GIB, GIB)
        self.working: Callable[[], object] = lambda: None
        self.mig: dict[str, list[Instance]] = {}
        self.failing: dict[str | tuple[str, str], Exception] = {}
        self.calls: dict[str, int] = {}
        self.opened_at: list[float] = []
        self.is_open = False
        self.is_outdated = False
        self.unsafe = False
        self.watched: list[Sequence[str]] = []
        self.watching = 0
        self._gates: dict[str | tuple[str, str], threading.Event] = {}
        self._inside = 0
        self._lock = threading.Lock()

    def hang(self, function: str, uuid: str = "") -> None:
        """Calls of it do not come back from now on."""
        self._gates[(function, uuid) if uuid else function] = threading.Event()

    def release(self) -> None:
        gates, self._gates = self._gates, {}
        for gate in gates.values():
            gate.set()

    @contextmanager
    def inside(self, function: str, uuid: str = "") -> Iterator[None]:
        with self._lock:
            self._inside += 1
            self.calls[function] = self.calls.get(function, 0) + 1
        try:
            for key in (function, (function, uuid)):
                gate = self._gates.get(key)
                if gate:
                    gate.wait(_GIVEN_UP)
                if key in self.failing:
                    raise self.failing[key]
            yield
        finally:
            with self._lock:
                self._inside -= 1

    def open(self) -> None:
        self.opened_at.append(self._clock.monotonic())
        with self.inside("open"):
            self.is_open = True

    def close(self) -> None:
        self.unsafe |= self._inside > 0
        with self.inside("close"):
            self.is_open = False

    def version(self) -> str:
        with self.inside("version"):
            return "580.95.05"

    def outdated(self) -> bool:
        return self.is_outdated

    def devices(self) -> tuple[Sequence[Device], Sequence[Missing]]:
        with self.inside("devices"):
            return [FakeDevice(self, uuid) for uuid in self.uuids], list(self.missing)

    def device(self, uuid: str) -> Device:
        return FakeDevice(self, uuid)

    def xids(self, devices: Sequence[Device]) -> Xids:
        with self.inside("xids"):
            self.watched.append([device.uuid for device in devices])
            return FakeXids(self)


class FakeXids:
    """Tells of none."""

    def __init__(self, library: FakeLibrary) -> None:
        self._library = library
        library.watching += 1

    def wait(self, seconds: float) -> XidSeen | None:
        with self._library.inside("wait"):
            time.sleep(0.01)
        return None

    def close(self) -> None:
        self._library.watching -= 1


class FakeDevice:
    """See driver.Device."""

    def __init__(self, library: FakeLibrary, uuid: str) -> None:
        self.uuid = uuid
        self._library = library

    def memory(self) -> Memory:
        with self._library.inside("memory", self.uuid):
            self._library.working()
            return self._library.memory

    def utilization(self) -> Utilization:
        with self._library.inside("utilization", self.uuid):
            return Utilization(0.5, 0.2)

    def identity(self) -> Identity:
        with self._library.inside("identity", self.uuid):
            number = self._library.uuids.index(self.uuid)
            pci = f"0000:{number + 0x10:02x}:00.0"
            return Identity(self.uuid, number, "NVIDIA H200", pci, "v2", "", True, self.uuid in self._library.mig)

    def fields(self, wanted: Sequence[Field]) -> Mapping[Field, float | DriverError]:
        with self._library.inside("fields", self.uuid):
            return dict.fromkeys(wanted, 1.0)

    def processes(self) -> Sequence[ProcessMemory]:
        with self._library.inside("processes", self.uuid):
            return [ProcessMemory(4_000_000, 20 * GIB, None)]

    def accounting(self) -> Mapping[int, int]:
        raise error("unsupported", "nvmlDeviceGetAccountingMode")

    def instances(self) -> Sequence[Instance]:
        with self._library.inside("instances", self.uuid):
            return self._library.mig.get(self.uuid, [])
