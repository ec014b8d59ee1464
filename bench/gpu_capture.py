"""What a driver answers, as it answers it: to be kept as a fixture."""

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pynvml

from oomcast_collectors.gpu.driver import Device

PCIE = {"pcie_tx_bytes": 197, "pcie_rx_bytes": 198}
_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_LAST_FIELD = 320
_GETTERS = (
    "Name",
    "Index",
    "Serial",
    "AddressingMode",
    "PersistenceMode",
    "MigMode",
    "MaxMigDeviceCount",
    "PowerUsage",
    "EnforcedPowerLimit",
    "TotalEnergyConsumption",
    "SupportedEventTypes",
    "AccountingMode",
    "RemappedRows",
    "CurrentClocksEventReasons",
)
_PATIENCE = 30


def capture(device: Device, directory: Path) -> dict[str, Any]:
    """Versions, structures, process lists and every field value of a GPU, by the name of the function that gave it; an
    error as its code. The text of nvidia-smi goes into `directory`. The library has to be open."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
    structures: Mapping[str, Callable[[], Any]] = {
        "nvmlDeviceGetPciInfo": lambda: pynvml.nvmlDeviceGetPciInfo(handle),
        "nvmlDeviceGetMemoryInfo": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle),
        "nvmlDeviceGetMemoryInfo_v2": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2),
        "nvmlDeviceGetBAR1MemoryInfo": lambda: pynvml.nvmlDeviceGetBAR1MemoryInfo(handle),
        "nvmlDeviceGetUtilizationRates": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
        "nvmlDeviceGetTemperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, 0),
        "nvmlDeviceGetClockInfo": lambda: [pynvml.nvmlDeviceGetClockInfo(handle, clock) for clock in range(4)],
        "nvmlDeviceGetComputeRunningProcesses_v3": lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
        "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda: pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": lambda: pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle),
        "nvmlDeviceGetProcessUtilization": lambda: pynvml.nvmlDeviceGetProcessUtilization(handle, 0),
    }
    return {
        "driver": _answer(pynvml.nvmlSystemGetDriverVersion),
        "nvml": _answer(pynvml.nvmlSystemGetNVMLVersion),
        "cuda": _answer(pynvml.nvmlSystemGetCudaDriverVersion_v2),
        "uuid": device.uuid,
        **{name: _answer(ask) for name, ask in structures.items()},
        **{f"nvmlDeviceGet{name}": _answer(_getter(name, handle)) for name in _GETTERS},
        "fields": {number: _field(handle, number) for number in range(1, _LAST_FIELD + 1)},
        "nvidia-smi": _nvidia_smi(directory),
    }


def counters(uuid: str) -> dict[str, Any]:
    """The fields of PCIE, each with its type and value. The library has to be open."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return {name: _field(handle, number) for name, number in PCIE.items()}


def _getter(name: str, handle: Any) -> Callable[[], Any]:
    found = getattr(pynvml, f"nvmlDeviceGet{name}", None)
    return lambda: found(handle) if found else {"absent": "in nvidia-ml-py"}


def _field(handle: Any, number: int) -> Any:
    # One by one, so that none can spoil another.
    try:
        value = pynvml.nvmlDeviceGetFieldValues(handle, [number])[0]
    except pynvml.NVMLError as error:
        return {"code": error.value}
    if value.nvmlReturn:
        return {"code": value.nvmlReturn}
    if value.valueType >= len(_TYPES):
        return {"type": value.valueType}
    kind = _TYPES[value.valueType]
    return {"type": kind, "value": getattr(value.value, kind)}


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return _plain(ask())
    except pynvml.NVMLError as error:
        return {"code": error.value}


def _plain(value: Any) -> Any:
    """As JSON has it: a structure as its fields."""
    names = [name for name, *_ in getattr(value, "_fields_", ())] or sorted(getattr(value, "__dict__", ()))
    if names:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str | int | float | None):
        return value
    return [_plain(one) for one in value] if hasattr(value, "__len__") else str(value)


def _nvidia_smi(directory: Path) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return "absent"
    try:
        text = subprocess.run([program, "-q", "-x"], capture_output=True, timeout=_PATIENCE, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"failed: {error}"
    (directory / "nvidia-smi.xml").write_bytes(text)
    return "nvidia-smi.xml"
