"""What the driver says of a GPU besides memory and utilisation: power, heat, clocks, errors, traffic; a row a field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from oomcast.metric import Kind, Metric, Sample
from oomcast_collectors.gpu.driver import DriverError, Field

RECOVERY_ACTIONS = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
"""By NVML's code."""

_SERIES = 64 * max(2, len(RECOVERY_ACTIONS))
"""Of 64 GPUs, with two values of a label or all states each."""
_ABSENT = "where the GPU or its driver does not tell; while the GPU does not answer"
_NARROW = 2**32


def _metric(name: str, kind: Kind, text: str, label: str = "", states: tuple[str, ...] = ()) -> Metric:
    labels = ("gpu", label) if label else ("gpu",)
    return Metric(f"oomcast_gpu_{name}", kind, text, labels, _SERIES, states, _ABSENT)


_TEMPERATURE = _metric("temperature_celsius", "gauge", "Temperature, by sensor (gpu, memory).", "sensor")
_CLOCK = _metric("clock_hertz", "gauge", "Present clock frequency, by clock (sm, memory).", "clock")
_ECC_ERRORS = _metric(
    "ecc_errors_total",
    "counter",
    "Memory errors since the driver was loaded, by kind: corrected (single bit), uncorrected (double bit).",
    "kind",
)
_REMAPPED_ROWS = _metric(
    "remapped_rows",
    "gauge",
    "Memory rows replaced by spare ones over the life of the GPU, by the kind of error (correctable, uncorrectable).",
    "kind",
)
_PCIE = _metric(
    "pcie_bytes_total",
    "counter",
    "Bytes over PCIe, by direction (tx is out of the GPU). NVML may wrap its counter: of one that is 32 bits wide, no"
    " more than 4 GiB between two readings can be told, and this is a lower bound.",
    "direction",
)
_NVLINK = _metric(
    "nvlink_bytes_total", "counter", "Bytes over all NVLinks, by direction (tx is out of the GPU).", "direction"
)


@dataclass(frozen=True, slots=True)
class Row:
    """Where a field goes. labels: of its series, after the GPU. low, high: what is outside cannot be true.

    narrow: the driver's counter may be 32 bits wide.
    """

    metric: Metric
    labels: tuple[str, ...]
    low: float
    high: float
    narrow: bool = False


# The bounds let through whatever a GPU may reach and refuse what libraries give where they know nothing: all ones of
# 32 or 64 bits, the largest signed numbers.
ROWS: Mapping[Field, Row] = {
    "power_watts": Row(_metric("power_watts", "gauge", "Power that the GPU draws."), (), 0, 1e5),
    "power_limit_watts": Row(_metric("power_limit_watts", "gauge", "Power that the GPU may draw."), (), 0, 1e5),
    "energy_joules": Row(
        _metric("energy_joules_total", "counter", "Energy used since the driver was loaded."), (), 0, 1e13
    ),
    "temperature_celsius": Row(_TEMPERATURE, ("gpu",), -50, 200),
    "memory_temperature_celsius": Row(_TEMPERATURE, ("memory",), -50, 200),
    "sm_clock_hertz": Row(_CLOCK, ("sm",), 0, 1e11),
    "memory_clock_hertz": Row(_CLOCK, ("memory",), 0, 1e11),
    "ecc_corrected": Row(_ECC_ERRORS, ("corrected",), 0, _NARROW - 2),
    "ecc_uncorrected": Row(_ECC_ERRORS, ("uncorrected",), 0, _NARROW - 2),
    "remapped_rows_correctable": Row(_REMAPPED_ROWS, ("correctable",), 0, 1e6),
    "remapped_rows_uncorrectable": Row(_REMAPPED_ROWS, ("uncorrectable",), 0, 1e6),
    "remap_pending": Row(
        _metric("row_remap_pending", "gauge", "1 if a row will be remapped at the next reset of the GPU."), (), 0, 1
    ),
    "remap_failed": Row(_metric("row_remap_failed", "gauge", "1 if remapping a row has ever failed."), (), 0, 1),
    "recovery_action": Row(
        _metric(
            "recovery_action",
            "stateset",
            "What the driver says must be done to make the GPU healthy again.",
            states=RECOVERY_ACTIONS,
        ),
        (),
        0,
        len(RECOVERY_ACTIONS) - 1,
    ),
    "pcie_tx_bytes": Row(_PCIE, ("tx",), 0, 2**62, narrow=True),
    "pcie_rx_bytes": Row(_PCIE, ("rx",), 0, 2**62, narrow=True),
    # NVML counts KiB in 64 bits.
    "nvlink_tx_bytes": Row(_NVLINK, ("tx",), 0, 2**72),
    "nvlink_rx_bytes": Row(_NVLINK, ("rx",), 0, 2**72),
}

METRICS = tuple(dict.fromkeys(row.metric for row in ROWS.values()))


class Answers(Protocol):
    """The part of a driver.Device that is asked here."""

    def fields(self, wanted: Sequence[Field]) -> Mapping[Field, float | DriverError]: ...


@dataclass(slots=True)
class _Total:
    """A counter that never goes back, from one of the driver that may. narrow: that one may be 32 bits wide."""

    value: float
    last: float
    narrow: bool

    def add(self, reading: float, unbroken: bool) -> None:
        """unbroken: the driver answered all the time since the last reading."""
        if reading >= _NARROW:
            self.narrow = False
        grown = reading - self.last
        if grown < 0:
            # NVML says that the counter can wrap, but not where. Where no reading was ever beyond 32 bits it is taken
            # to be there; after an interruption the driver or the GPU was rather reset.
            grown = grown + _NARROW if self.narrow and unbroken else reading
        self.last = reading
        self.value += grown


class Fields:
    """The fields of one GPU. `read` and `renew` are called by one thread at a time, all else by any.

    errors, invalid: calls that failed, and readings outside their range, by field; replaced as a whole, never changed.
    """

    def __init__(self, gpu: str) -> None:
        self._series = {field: row.metric.series(gpu, *row.labels) for field, row in ROWS.items()}
        self._totals: dict[Field, _Total] = {}
        self._unsupported: frozenset[Field] = frozenset()
        # Another one with every `forget`, so that a read that was under way then comes too late.
        self._run = object()
        self._latest: tuple[object, tuple[Sample, ...]] = (self._run, ())
        self.errors: Mapping[str, int] = {}
        self.invalid: Mapping[str, int] = {}

    @property
    def unsupported(self) -> int:
        """How many fields this GPU does not have."""
        return len(self._unsupported)

    def samples(self) -> list[Sample]:
        """Of the latest `read`; a field that it did not get has none."""
        run, samples = self._latest
        return list(samples) if run is self._run else []

    def read(self, device: Answers) -> None:
        """Asks for all fields at once. Raises DriverError, and forgets, when the GPU as a whole does not answer."""
        wanted = [field for field in ROWS if field not in self._unsupported]
        if not wanted:
            return
        run = self._run
        try:
            answers = device.fields(wanted)
        except DriverError:
            self.forget()
            raise
        unbroken = run is self._latest[0]
        samples = (self._sample(field, answer, unbroken) for field, answer in answers.items())
        self._latest = run, tuple(sample for sample in samples if sample is not None)

    def forget(self) -> None:
        """The GPU does not answer: what it said last is no longer true. Counters go on where they were."""
        self._run = object()

    def renew(self) -> None:
        """The library was initialised anew, maybe with another driver: everything is asked for again."""
        self.forget()
        self._unsupported = frozenset()

    def _sample(self, field: Field, answer: float | DriverError, unbroken: bool) -> Sample | None:
        if isinstance(answer, DriverError):
            if answer.fault == "unsupported":
                self._unsupported |= {field}
            else:
                self.errors = _counted(self.errors, field)
            return None
        row = ROWS[field]
        if not row.low <= answer <= row.high:
            self.invalid = _counted(self.invalid, field)
            return None
        return Sample(self._series[field], self._value(field, row, answer, unbroken))

    def _value(self, field: Field, row: Row, reading: float, unbroken: bool) -> float | str:
        if row.metric.kind == "stateset":
            return row.metric.states[int(reading)]
        if row.metric.kind != "counter":
            return reading
        total = self._totals.get(field)
        if total is None:
            total = self._totals[field] = _Total(reading, reading, row.narrow)
        total.add(reading, unbroken)
        return total.value


def _counted(counts: Mapping[str, int], field: Field) -> Mapping[str, int]:
    return {**counts, field: counts.get(field, 0) + 1}
