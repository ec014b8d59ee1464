"""One GPU as NVML sees it, and its MIG GPU instances."""

import ctypes
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from oomcast_collectors.gpu.driver import DriverError, Field, Identity, Memory, ProcessMemory, Utilization
from oomcast_collectors.gpu.nvml_fields import read_fields
from oomcast_collectors.gpu.nvml_processes import read_processes
from oomcast_collectors.gpu.nvml_session import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    Session,
)

_MEMORY_V2 = struct.Struct("I4xQQQQ")  # nvmlMemory_v2_t: version, total, reserved, free, used
_MEMORY_V2_VERSION = _MEMORY_V2.size | 2 << 24
_NO_BYTES = 2**64 - 1
_MOST_INSTANCES = 64
_ADDRESSING = ("none", "hmm", "ats")  # by NVML_DEVICE_ADDRESSING_MODE_…
_PROFILE = re.compile(r" MIG (?:\d+c\.)?(\S+)$")


class NvmlDevice:
    """A handle of a GPU and what can be asked of it, see driver.Device. uuid: of `handle`."""

    def __init__(self, session: Session, handle: Any, uuid: str) -> None:
        self.uuid = uuid
        self.handle = handle
        self._session = session
        self._memory = _MemoryReader(session, handle)

    def memory(self) -> Memory:
        return self._memory.read()

    def utilization(self) -> Utilization:
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        return Utilization(rates.gpu / 100, rates.memory / 100)

    def identity(self) -> Identity:
        pci = self._ask("nvmlDeviceGetPciInfo")
        addressing = self._ask_if_supported("nvmlDeviceGetAddressingMode", None)
        persistence = self._ask_if_supported("nvmlDeviceGetPersistenceMode", None)
        return Identity(
            uuid=self.uuid,
            index=self._ask("nvmlDeviceGetIndex"),
            name=self._ask("nvmlDeviceGetName"),
            pci=f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
            # Not `_memory`, which another thread may be reading.
            memory_api=_MemoryReader(self._session, self.handle).probe(),
            addressing=_ADDRESSING[addressing] if addressing in range(len(_ADDRESSING)) else "",
            persistence=None if persistence is None else bool(persistence),
            mig=self._has_mig(),
        )

    def fields(self, wanted: Sequence[Field]) -> Mapping[Field, float | DriverError]:
        return read_fields(self._session, self.handle, wanted)

    def processes(self) -> Sequence[ProcessMemory]:
        return read_processes(self._session, self.handle)

    def accounting(self) -> Mapping[int, int]:
        if not self._ask("nvmlDeviceGetAccountingMode"):
            raise DriverError("unsupported", "nvmlDeviceGetAccountingMode", NOT_SUPPORTED, "accounting mode is off")
        peaks: dict[int, int] = {}
        for pid in self._ask("nvmlDeviceGetAccountingPids"):
            # Not nvidia-ml-py's function, which raises TypeError where the memory of a process is not known.
            stats = self._session.api.c_nvmlAccountingStats_t()
            try:
                self._session.raw("nvmlDeviceGetAccountingStats", self.handle, ctypes.c_uint(pid), ctypes.byref(stats))
            except DriverError as error:
                if error.code != NOT_FOUND:  # it has left the driver's buffer meanwhile
                    raise
            else:
                if stats.maxMemoryUsage != _NO_BYTES:
                    peaks[pid] = stats.maxMemoryUsage
        return peaks

    def instances(self) -> Sequence["NvmlInstance"]:
        if not self._has_mig():
            return []
        found: dict[int, NvmlInstance] = {}
        for number in range(min(self._ask("nvmlDeviceGetMaxMigDeviceCount"), _MOST_INSTANCES)):
            try:
                handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", number)
                instance = self._session.call("nvmlDeviceGetGpuInstanceId", handle)
                # The compute instances of one GPU instance share its memory: the first stands for all.
                if instance not in found:
                    found[instance] = NvmlInstance(self._session, handle, instance)
            except DriverError as error:
                if error.code not in (NOT_FOUND, INVALID_ARGUMENT):  # an empty slot, or one that was just emptied
                    raise
        return list(found.values())

    def _has_mig(self) -> bool:
        current, _ = self._ask_if_supported("nvmlDeviceGetMigMode", (0, 0))
        return bool(current)

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._session.call(function, self.handle, *arguments)

    def _ask_if_supported(self, function: str, otherwise: Any) -> Any:
        try:
            return self._ask(function)
        except DriverError as error:
            if error.fault not in ("unsupported", "not_permitted"):
                raise
            return otherwise


class NvmlInstance:
    """A MIG GPU instance, see driver.Instance."""

    def __init__(self, session: Session, handle: Any, instance: int) -> None:
        self.instance = instance
        self.uuid: str = session.call("nvmlDeviceGetUUID", handle)
        profile = _PROFILE.search(session.call("nvmlDeviceGetName", handle))
        self.profile = profile[1] if profile else ""
        self._memory = _MemoryReader(session, handle)

    def memory(self) -> Memory:
        return self._memory.read()


class _MemoryReader:
    """Memory by the newest interface that the library has for a handle. For one thread at a time.

    It is read hundreds of times a second, so the structure is kept, and nvidia-ml-py's function, which makes one for
    each call and costs twice as much as all the rest, is left out.
    """

    def __init__(self, session: Session, handle: Any) -> None:
        self._session = session
        self._handle = handle
        self._api: Literal["v1", "v2"] = "v2"
        version = _MEMORY_V2.pack(_MEMORY_V2_VERSION, 0, 0, 0, 0)
        self._memory = ctypes.create_string_buffer(version, _MEMORY_V2.size)

    def read(self) -> Memory:
        if self._api == "v2":
            try:
                self._session.raw("nvmlDeviceGetMemoryInfo_v2", self._handle, self._memory)
            except DriverError as error:
                if error.code != FUNCTION_NOT_FOUND:
                    raise
                self._api = "v1"
            else:
                _, total, reserved, free, used = _MEMORY_V2.unpack_from(self._memory)
                return Memory(total, used, free, reserved)
        got = self._session.call("nvmlDeviceGetMemoryInfo", self._handle)
        return Memory(got.total, got.used, got.free, None)

    def probe(self) -> str:
        """Which interface that is; "" where memory is not supported."""
        try:
            self.read()
        except DriverError as error:
            if error.fault == "unsupported":
                return ""
            if error.fault != "not_permitted":
                raise
        return self._api
