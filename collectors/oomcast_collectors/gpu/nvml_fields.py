"""The fields of a GPU: which question of NVML's each is, and in which unit it is answered."""

import ctypes
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from oomcast_collectors.gpu.driver import DriverError, Fault, Field
from oomcast_collectors.gpu.nvml_session import NO_DATA, NOT_SUPPORTED, UNKNOWN, Session

Outcome = float | DriverError

_ALL_LINKS = 0xFFFFFFFF
_MOST_LINKS = 64
_LINK_COUNT = 91  # NVML_FI_DEV_NVLINK_LINK_COUNT
# By nvmlValueType_t. A value with all bits set is NVML_VALUE_NOT_AVAILABLE where it has no sign.
_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_NOT_AVAILABLE: Mapping[str, int] = MappingProxyType({"uiVal": 2**32 - 1, "ulVal": 2**64 - 1, "ullVal": 2**64 - 1})

WHOLE_GPU: frozenset[Fault] = frozenset({"lost", "reset_required", "session", "mismatch", "no_driver"})
"""Faults that are never about one question alone."""


class _Value(NamedTuple):
    """A field value (NVML_FI_DEV_…). Its base unit: value * times / over."""

    id: int
    times: int = 1
    over: int = 1
    scope: int = 0


class _Call(NamedTuple):
    """A function with its arguments behind the handle."""

    function: str
    arguments: tuple[int, ...] = ()
    times: int = 1
    over: int = 1


_VALUES: Mapping[Field, _Value] = MappingProxyType(
    {
        "memory_temperature_celsius": _Value(82),  # MEMORY_TEMP
        "energy_joules": _Value(83, over=1000),  # TOTAL_ENERGY_CONSUMPTION, millijoules
        "nvlink_tx_bytes": _Value(138, times=1024, scope=_ALL_LINKS),  # NVLINK_THROUGHPUT_DATA_TX, KiB
        "nvlink_rx_bytes": _Value(139, times=1024, scope=_ALL_LINKS),  # NVLINK_THROUGHPUT_DATA_RX
        "remapped_rows_correctable": _Value(142),  # REMAPPED_COR
        "remapped_rows_uncorrectable": _Value(143),  # REMAPPED_UNC
        "remap_pending": _Value(144),  # REMAPPED_PENDING
        "remap_failed": _Value(145),  # REMAPPED_FAILURE
        "pcie_tx_bytes": _Value(197),  # PCIE_COUNT_TX_BYTES, may wrap
        "pcie_rx_bytes": _Value(198),  # PCIE_COUNT_RX_BYTES
        "recovery_action": _Value(230),  # GET_GPU_RECOVERY_ACTION
    }
)
_CALLS: Mapping[Field, tuple[_Call, ...]] = MappingProxyType(
    {
        "power_watts": (_Call("nvmlDeviceGetPowerUsage", over=1000),),
        "power_limit_watts": (_Call("nvmlDeviceGetEnforcedPowerLimit", over=1000),),
        "temperature_celsius": (_Call("nvmlDeviceGetTemperatureV", (0,)), _Call("nvmlDeviceGetTemperature", (0,))),
        "sm_clock_hertz": (_Call("nvmlDeviceGetClockInfo", (1,), times=1_000_000),),
        "memory_clock_hertz": (_Call("nvmlDeviceGetClockInfo", (2,), times=1_000_000),),
        "ecc_corrected": (_Call("nvmlDeviceGetTotalEccErrors", (0, 0)),),
        "ecc_uncorrected": (_Call("nvmlDeviceGetTotalEccErrors", (1, 0)),),
    }
)
"""The first that this driver has is used."""


def read_fields(session: Session, handle: Any, wanted: Sequence[Field]) -> dict[Field, Outcome]:
    """Each of `wanted` with its value in base units, or why there is none. Raises DriverError about the whole GPU."""
    batch = [field for field in wanted if field in _VALUES]
    found = dict(zip(batch, _ask_values(session, handle, [_VALUES[field] for field in batch]), strict=True))
    for field in batch:
        if _VALUES[field].scope == _ALL_LINKS and isinstance(found[field], DriverError):
            found[field] = _sum_links(session, handle, _VALUES[field])
    for field in wanted:
        if field in _CALLS:
            found[field] = _ask(session, handle, _CALLS[field])
    return found


def _ask(session: Session, handle: Any, calls: tuple[_Call, ...]) -> Outcome:
    for call in calls:
        try:
            return float(session.call(call.function, handle, *call.arguments)) * call.times / call.over
        except DriverError as error:
            outcome = _about_one_question(error)
            if error.fault != "unsupported":
                break
    return outcome


def _ask_values(session: Session, handle: Any, values: Sequence[_Value]) -> list[Outcome]:
    if not values:
        return []
    # One entry more than asked for: some drivers write behind the last one when they are asked for NVLink.
    entries = (session.api.c_nvmlFieldValue_t * (len(values) + 1))()
    for entry, value in zip(entries, values, strict=False):
        entry.fieldId, entry.scopeId = value.id, value.scope
    try:
        session.raw("nvmlDeviceGetFieldValues", handle, ctypes.c_int(len(values)), entries)
    except DriverError as error:
        return [_about_one_question(error)] * len(values)
    return [_outcome(session, entry, value) for entry, value in zip(entries, values, strict=False)]


def _outcome(session: Session, entry: Any, value: _Value) -> Outcome:
    if entry.nvmlReturn:
        return _about_one_question(session.error("nvmlDeviceGetFieldValues", entry.nvmlReturn))
    if entry.valueType >= len(_TYPES):
        return session.error("nvmlDeviceGetFieldValues", UNKNOWN)
    kind = _TYPES[entry.valueType]
    number = getattr(entry.value, kind)
    if number == _NOT_AVAILABLE.get(kind):
        return session.error("nvmlDeviceGetFieldValues", NO_DATA)
    return float(number * value.times / value.over)


def _sum_links(session: Session, handle: Any, value: _Value) -> Outcome:
    """What all links have that answer; for drivers that do not add them up themselves."""
    (links,) = _ask_values(session, handle, [_Value(_LINK_COUNT)])
    if isinstance(links, DriverError):
        return links
    each = [value._replace(scope=link) for link in range(min(int(links), _MOST_LINKS))]
    outcomes = _ask_values(session, handle, each)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, DriverError)]
    if answers:
        return sum(answers)
    return outcomes[0] if outcomes else session.error("nvmlDeviceGetFieldValues", NOT_SUPPORTED)


def _about_one_question(error: DriverError) -> DriverError:
    if error.fault in WHOLE_GPU:
        raise error
    return error
