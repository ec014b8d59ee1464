"""The driver's own library, NVML, behind the protocol of driver.py. The work is in nvml_*.py."""

import ctypes
from collections.abc import Sequence
from typing import Any

from oomcast_collectors.gpu.driver import Device, DriverError, Fault, Missing, XidSeen
from oomcast_collectors.gpu.nvml_device import NvmlDevice
from oomcast_collectors.gpu.nvml_session import NOT_SUPPORTED, TIMEOUT, UNINITIALIZED, Library, Session

_MOST_GPUS = 64
_XID = 0x8  # nvmlEventTypeXidCriticalError
_ONE_GPU: frozenset[Fault] = frozenset({"unsupported", "lost", "reset_required", "not_permitted"})
_LIBRARY: frozenset[Fault] = frozenset({"mismatch", "no_driver"})


class Nvml:
    """See driver.Driver. library: a name for the loader, or a path. A process can have only one."""

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        self._name = library
        self._library: Library | None = None
        self._session: Session | None = None
        self._uuids: dict[int, str] = {}

    def open(self) -> None:
        """Nothing happens if it is open."""
        if self._session is None:
            self._uuids = {}
            # Loaded once: loading it again gives the same one, whatever file there is by now.
            self._library = self._library or Library(self._name)
            self._session = Session(self._library)

    def close(self) -> None:
        """Nothing happens if it is closed."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def version(self) -> str:
        version: str = self._opened("nvmlSystemGetDriverVersion").call("nvmlSystemGetDriverVersion")
        return version

    def outdated(self) -> bool:
        """Also while it is not open; False until it was loaded."""
        return self._library is not None and self._library.outdated()

    def devices(self) -> tuple[Sequence[NvmlDevice], Sequence[Missing]]:
        session = self._opened("nvmlDeviceGetCount")
        found: list[NvmlDevice] = []
        missing: list[Missing] = []
        for index in range(min(session.call("nvmlDeviceGetCount"), _MOST_GPUS)):
            try:
                handle = session.call("nvmlDeviceGetHandleByIndex", index)
                uuid = session.call("nvmlDeviceGetUUID", handle)
            except DriverError as error:
                if error.fault in _LIBRARY or error.code == UNINITIALIZED:
                    raise
                # Within one initialisation an index stays the same GPU.
                missing.append(Missing(index, self._uuids.get(index, ""), error))
            else:
                self._uuids[index] = uuid
                found.append(NvmlDevice(session, handle, uuid))
        return found, missing

    def device(self, uuid: str) -> NvmlDevice:
        session = self._opened("nvmlDeviceGetHandleByUUID")
        return NvmlDevice(session, session.call("nvmlDeviceGetHandleByUUID", uuid), uuid)

    def xids(self, devices: Sequence[Device]) -> "NvmlXids":
        """`devices`: of this driver."""
        session = self._opened("nvmlEventSetCreate")
        return NvmlXids(session, [device for device in devices if isinstance(device, NvmlDevice)])

    def _opened(self, function: str) -> Session:
        if self._session is None:
            raise DriverError("session", function, UNINITIALIZED, "the library is not open")
        return self._session


class NvmlXids:
    """See driver.Xids. `close` while another thread is in `wait` crashes the library."""

    def __init__(self, session: Session, devices: Sequence[NvmlDevice]) -> None:
        self._session = session
        self._set = session.call("nvmlEventSetCreate")
        try:
            self._uuids = {_address(device.handle): device.uuid for device in devices if self._register(device)}
            if not self._uuids:
                raise session.error("nvmlDeviceRegisterEvents", NOT_SUPPORTED)
        except DriverError:
            self.close()
            raise

    def wait(self, seconds: float) -> XidSeen | None:
        try:
            event = self._session.call("nvmlEventSetWait_v2", self._set, int(seconds * 1000))
        except DriverError as error:
            if error.code == TIMEOUT:
                return None
            raise
        if event.eventType != _XID:
            return None
        return XidSeen(self._uuids.get(_address(event.device), ""), event.eventData)

    def close(self) -> None:
        self._session.call("nvmlEventSetFree", self._set)

    def _register(self, device: NvmlDevice) -> bool:
        """Whether events of it come. A failure that says nothing about the set's other GPUs leaves it out."""
        try:
            if not self._session.call("nvmlDeviceGetSupportedEventTypes", device.handle) & _XID:
                return False
            self._session.call("nvmlDeviceRegisterEvents", device.handle, _XID, self._set)
        except DriverError as error:
            if error.fault not in _ONE_GPU:
                raise
            return False
        return True


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
