"""What a dcgm-exporter measures: its metrics, the quantity each one is, and the values of one GPU.

Metrics bear the names of DCGM's fields. 1.x had names of its own; 4.6 and 4.7 renamed many, some with another unit.
"""

import sys
from collections.abc import Mapping
from typing import NamedTuple, get_args

from oomcast_collectors.gpu.driver import Field

_MIB = 1 << 20
_FINITE = sys.float_info.max

# DCGM's codes for no value, not found, not supported and not permitted, of its 32 and 64 bit integers and its doubles;
# those of 64 bits are one float.
BLANK = frozenset(float(first + code) for first in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 1 << 47) for code in range(4))


class Row(NamedTuple):
    """The quantity is value * times / per; a value that is not from 0 to `limit` cannot be true."""

    quantity: str
    limit: float = _FINITE
    times: int = 1
    per: int = 1


_MEBIBYTES = {"limit": 1 << 24, "times": _MIB}
_BYTES = {"limit": 1 << 44}
_PERCENT = {"limit": 100, "per": 100}

# Not here, as a page does not say what they are: FB_USED_PERCENT, which was (used + reserved) / total and later became
# used / (total - reserved); rates that some releases call counters (PCIE_TX_THROUGHPUT, PROF_PCIE_TX_BYTES,
# NVLINK_BANDWIDTH_TOTAL); NVLink's byte counters, which may be those of one link.
_TABLE: Mapping[Row, tuple[str, ...]] = {
    Row("used", **_MEBIBYTES): ("DCGM_FI_DEV_FB_USED", "dcgm_fb_used"),
    Row("used", **_BYTES): ("DCGM_FI_DEV_FB_USED_BYTES",),
    Row("free", **_MEBIBYTES): ("DCGM_FI_DEV_FB_FREE", "dcgm_fb_free"),
    Row("free", **_BYTES): ("DCGM_FI_DEV_FB_FREE_BYTES",),
    Row("reserved", **_MEBIBYTES): ("DCGM_FI_DEV_FB_RESERVED",),
    Row("reserved", **_BYTES): ("DCGM_FI_DEV_FB_RESERVED_BYTES",),
    Row("total", **_MEBIBYTES): ("DCGM_FI_DEV_FB_TOTAL",),
    Row("total", **_BYTES): ("DCGM_FI_DEV_FB_CAPACITY_BYTES",),
    Row("used_ratio", 1): ("DCGM_FI_DEV_FB_USED_RATIO",),
    Row("gpu", **_PERCENT): ("DCGM_FI_DEV_GPU_UTIL", "dcgm_gpu_utilization"),
    Row("gpu", 1): ("DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_GPU_UTIL_RATIO_V2"),
    Row("copy", **_PERCENT): ("DCGM_FI_DEV_MEM_COPY_UTIL", "dcgm_mem_copy_utilization"),
    Row("copy", 1): ("DCGM_FI_DEV_MEMORY_UTIL_RATIO",),
    Row("xid", 9999): ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", "dcgm_xid_errors"),
    Row("power_watts"): ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", "dcgm_power_usage"),
    Row("power_limit_watts"): ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"),
    Row("power_limit_requested"): ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS"),
    Row("energy_joules", per=1000): ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "dcgm_total_energy_consumption"),
    Row("energy_joules"): ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",),
    Row("temperature_celsius", 300): ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "dcgm_gpu_temp"),
    Row("memory_temperature_celsius", 300): (
        "DCGM_FI_DEV_MEMORY_TEMP",
        "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
        "dcgm_memory_temp",
    ),
    Row("sm_clock_hertz", times=10**6): ("DCGM_FI_DEV_SM_CLOCK", "dcgm_sm_clock"),
    Row("sm_clock_hertz"): ("DCGM_FI_DEV_SM_CLOCK_HERTZ",),
    Row("memory_clock_hertz", times=10**6): ("DCGM_FI_DEV_MEM_CLOCK", "dcgm_memory_clock"),
    Row("memory_clock_hertz"): ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",),
    Row("ecc_corrected"): ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "dcgm_ecc_sbe_volatile_total"),
    Row("ecc_uncorrected"): ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "dcgm_ecc_dbe_volatile_total"),
    Row("remapped_rows_correctable"): (
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
    ),
    Row("remapped_rows_uncorrectable"): (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    ),
    Row("remap_pending", 1): ("DCGM_FI_DEV_ROW_REMAP_PENDING",),
    Row("remap_failed", 1): ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"),
    Row("recovery_action", 99): ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GPU_RECOVERY_ACTION"),
    Row("pcie_tx_bytes"): ("DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL",),
    Row("pcie_rx_bytes"): ("DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL",),
}

ROWS: Mapping[str, Row] = {name: row for row, names in _TABLE.items() for name in names}


class DcgmMemory(NamedTuple):
    """Bytes, of whole MiB before 4.7, so that sums may be off by three; None where it is neither given nor follows from
    the others. used_ratio: used / (total - reserved), 0 to 1."""

    used: int | None
    free: int | None
    reserved: int | None
    total: int | None
    used_ratio: float | None


class Values:
    """The quantities of one GPU or instance, each once, however many series it has."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[bool, float]] = {}
        self._blank: set[str] = set()
        self.invalid: set[str] = set()

    def add(self, row: Row, value: float, *, of_pod: bool) -> None:
        if value in BLANK:
            self._blank.add(row.quantity)
        elif not 0 <= value <= row.limit:
            self.invalid.add(row.quantity)
        else:
            # Of a shared GPU each pod has a series: with the GPU's value, or with the pod's part of it beside a series
            # of the GPU that names no pod.
            found = (not of_pod, value * row.times / row.per)
            self._found[row.quantity] = max(found, self._found.get(row.quantity, found))

    def get(self, quantity: str) -> float | None:
        found = self._found.get(quantity)
        return None if found is None else found[1]

    def blank(self) -> frozenset[str]:
        return frozenset(self._blank - self._found.keys())

    def memory(self) -> DcgmMemory:
        used, free, reserved, total = (self._bytes(part) for part in ("used", "free", "reserved", "total"))
        if used is not None and free is not None:
            if reserved is not None and total is None:
                total = used + free + reserved
            elif reserved is None and total is not None and total >= used + free:
                reserved = total - used - free
        ratio = self.get("used_ratio")
        if used is not None and free is not None and used + free > 0:
            ratio = used / (used + free)
        return DcgmMemory(used, free, reserved, total, ratio)

    def _bytes(self, quantity: str) -> int | None:
        value = self.get(quantity)
        return None if value is None else int(value)

    def fields(self) -> dict[Field, float]:
        fields: dict[Field, float] = {}
        for name in get_args(Field):
            value = self.get(name)
            if value is None and name == "power_limit_watts":
                value = self.get("power_limit_requested")
            if value is not None:
                fields[name] = value
        return fields
