from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import pytest

from oomcast.metric import Sample
from oomcast.store import Store
from oomcast_collectors.gpu.driver import (
    DriverError,
    Fault,
    Field,
    Identity,
    Instance,
    Memory,
    ProcessMemory,
    Utilization,
)
from oomcast_collectors.gpu.fields import METRICS, RECOVERY_ACTIONS, ROWS, Fields

GIB = 1 << 30

Answer = float | DriverError

PLAIN: Mapping[str, float] = {
    "power_watts": 351.2,
    "power_limit_watts": 700,
    "energy_joules": 1_000.5,
    "temperature_celsius": 44,
    "memory_temperature_celsius": 52,
    "sm_clock_hertz": 1_980_000_000,
    "memory_clock_hertz": 3_201_000_000,
    "ecc_corrected": 3,
    "ecc_uncorrected": 0,
    "remapped_rows_correctable": 1,
    "remapped_rows_uncorrectable": 2,
    "remap_pending": 1,
    "remap_failed": 0,
    "recovery_action": 4,
    "pcie_tx_bytes": 5 * GIB,
    "pcie_rx_bytes": 6 * GIB,
    "nvlink_tx_bytes": 7 * GIB,
    "nvlink_rx_bytes": 8 * GIB,
}


def failure(fault: Fault = "transient") -> DriverError:
    return DriverError(fault, "nvmlDeviceGetFieldValues", 999, "Unknown Error")


class Gpu:
    """A device that has fields only. during: what happens while the driver is asked."""

    uuid = "GPU-0"

    def __init__(self, **answers: Answer) -> None:
        self.answers: dict[str, Answer] = {**PLAIN, **answers}
        self.asked: list[Sequence[Field]] = []
        self.fault: DriverError | None = None
        self.during: Callable[[], None] = lambda: None

    def fields(self, wanted: Sequence[Field]) -> Mapping[Field, Answer]:
        self.asked.append(wanted)
        self.during()
        if self.fault is not None:
            raise self.fault
        return {field: self.answers[field] for field in wanted}

    def memory(self) -> Memory:
        raise NotImplementedError

    def utilization(self) -> Utilization:
        raise NotImplementedError

    def identity(self) -> Identity:
        raise NotImplementedError

    def processes(self) -> Sequence[ProcessMemory]:
        raise NotImplementedError

    def accounting(self) -> Mapping[int, int]:
        raise NotImplementedError

    def instances(self) -> Sequence[Instance]:
        raise NotImplementedError


@pytest.fixture
def fields() -> Fields:
    return Fields("GPU-0")


def value(fields: Fields, field: Field) -> object:
    """What is published of the field, None without a sample."""
    row = ROWS[field]
    labels = dict(zip(row.metric.labels, ("GPU-0", *row.labels), strict=True))
    found = [s.value for s in fields.samples() if s.series.metric is row.metric and dict(s.series.labels) == labels]
    assert len(found) <= 1
    return found[0] if found else None


def totals(fields: Fields, field: Field, *readings: float) -> list[object]:
    """What is published after each of the readings."""
    published = []
    for reading in readings:
        fields.read(Gpu(**{field: reading}))
        published.append(value(fields, field))
    return published


def test_every_field_of_the_driver_has_a_row_with_a_series_of_its_own() -> None:
    assert set(ROWS) == set(get_args(Field)) == set(PLAIN)
    assert len({(row.metric, row.labels) for row in ROWS.values()}) == len(ROWS)


def test_what_a_scrape_gets(fields: Fields) -> None:
    fields.read(Gpu())
    store = Store(METRICS)
    store.put("gpu", fields.samples())
    assert not store.dropped()
    lines = {s.series.head.strip().removeprefix("oomcast_gpu_"): s.value for s in fields.samples()}
    assert lines == {
        'power_watts{gpu="GPU-0"}': 351.2,
        'power_limit_watts{gpu="GPU-0"}': 700,
        'energy_joules_total{gpu="GPU-0"}': 1_000.5,
        'temperature_celsius{gpu="GPU-0",sensor="gpu"}': 44,
        'temperature_celsius{gpu="GPU-0",sensor="memory"}': 52,
        'clock_hertz{clock="sm",gpu="GPU-0"}': 1.98e9,
        'clock_hertz{clock="memory",gpu="GPU-0"}': 3.201e9,
        'ecc_errors_total{gpu="GPU-0",kind="corrected"}': 3,
        'ecc_errors_total{gpu="GPU-0",kind="uncorrected"}': 0,
        'remapped_rows{gpu="GPU-0",kind="correctable"}': 1,
        'remapped_rows{gpu="GPU-0",kind="uncorrectable"}': 2,
        'row_remap_pending{gpu="GPU-0"}': 1,
        'row_remap_failed{gpu="GPU-0"}': 0,
        'recovery_action{gpu="GPU-0"}': "drain_and_reset",
        'pcie_bytes_total{direction="tx",gpu="GPU-0"}': 5 * GIB,
        'pcie_bytes_total{direction="rx",gpu="GPU-0"}': 6 * GIB,
        'nvlink_bytes_total{direction="tx",gpu="GPU-0"}': 7 * GIB,
        'nvlink_bytes_total{direction="rx",gpu="GPU-0"}': 8 * GIB,
    }


def test_series_are_the_same_objects_with_every_reading(fields: Fields) -> None:
    fields.read(Gpu())
    before = [sample.series for sample in fields.samples()]
    fields.read(Gpu())
    assert [sample.series for sample in fields.samples()] == before


def test_nothing_is_published_before_the_first_reading(fields: Fields) -> None:
    assert (fields.samples(), fields.errors, fields.invalid, fields.unsupported) == ([], {}, {}, 0)


def test_what_is_unsupported_is_asked_once_and_again_with_another_session(fields: Fields) -> None:
    gpu = Gpu(memory_temperature_celsius=failure("unsupported"), nvlink_tx_bytes=failure("unsupported"))
    fields.read(gpu)
    fields.read(gpu)
    fields.forget()
    fields.read(gpu)
    assert [len(asked) for asked in gpu.asked] == [18, 16, 16]
    assert "nvlink_tx_bytes" not in gpu.asked[1]
    assert (fields.unsupported, fields.errors) == (2, {})
    fields.renew()
    assert fields.unsupported == 0
    fields.read(Gpu())
    assert value(fields, "memory_temperature_celsius") == 52


def test_a_gpu_that_has_no_field_is_left_in_peace(fields: Fields) -> None:
    gpu = Gpu(**dict.fromkeys(ROWS, failure("unsupported")))
    fields.read(gpu)
    fields.read(gpu)
    assert len(gpu.asked) == 1
    assert fields.samples() == []


def test_an_error_costs_its_field_alone_and_only_until_it_is_read_again(fields: Fields) -> None:
    fields.read(Gpu())
    for _ in range(2):
        fields.read(Gpu(power_watts=failure(), energy_joules=failure("not_permitted")))
    assert (value(fields, "power_watts"), value(fields, "energy_joules")) == (None, None)
    assert len(fields.samples()) == len(ROWS) - 2
    assert fields.errors == {"power_watts": 2, "energy_joules": 2}
    fields.read(Gpu())
    assert value(fields, "power_watts") == 351.2
    assert fields.errors == {"power_watts": 2, "energy_joules": 2}


@pytest.mark.parametrize(
    ("field", "reading"),
    [
        ("power_watts", -1),
        ("power_watts", float("nan")),
        ("power_watts", (2**32 - 1) / 1000),
        ("energy_joules", (2**64 - 1) / 1000),
        ("energy_joules", float("inf")),
        ("temperature_celsius", 2**32 - 1),
        ("temperature_celsius", -274),
        ("sm_clock_hertz", (2**32 - 1) * 1e6),
        ("ecc_corrected", 2**32 - 1),
        ("ecc_uncorrected", 2**64 - 1),
        ("remapped_rows_correctable", 2**32 - 1),
        ("remap_pending", 2),
        ("recovery_action", -1),
        ("recovery_action", len(RECOVERY_ACTIONS)),
        ("pcie_rx_bytes", 2**64 - 1),
        ("nvlink_rx_bytes", (2**64 - 1) * 1024),
    ],
)
def test_garbage_is_dropped_and_counted(fields: Fields, field: Field, reading: float) -> None:
    fields.read(Gpu(**{field: reading}))
    assert value(fields, field) is None
    assert len(fields.samples()) == len(ROWS) - 1
    assert (fields.invalid, fields.errors) == ({field: 1}, {})
    fields.read(Gpu())
    assert value(fields, field) is not None
    assert fields.invalid == {field: 1}


def test_garbage_is_not_added_to_a_counter(fields: Fields) -> None:
    assert totals(fields, "energy_joules", 100, (2**64 - 1) / 1000, 130) == [100, None, 130]


@pytest.mark.parametrize("field", ["energy_joules", "ecc_corrected", "ecc_uncorrected", "nvlink_tx_bytes"])
def test_a_counter_starts_where_the_driver_is_and_goes_on_after_its_reset(fields: Fields, field: Field) -> None:
    assert totals(fields, field, 100, 100, 250, 30, 40, 0, 5) == [100, 100, 250, 280, 290, 290, 295]


def test_recovery_actions_by_their_codes(fields: Fields) -> None:
    assert totals(fields, "recovery_action", *range(len(RECOVERY_ACTIONS))) == list(RECOVERY_ACTIONS)


def test_the_codes_are_those_of_nvml() -> None:
    pynvml = pytest.importorskip("pynvml")
    prefix = "NVML_GPU_RECOVERY_ACTION_"
    codes = {name.removeprefix(prefix).lower(): code for name, code in vars(pynvml).items() if name.startswith(prefix)}
    assert codes == {action: code for code, action in enumerate(RECOVERY_ACTIONS) if action in codes}


def test_pcie_bytes_wrap_at_32_bits(fields: Fields) -> None:
    assert totals(fields, "pcie_tx_bytes", 3 * GIB, 1 * GIB, 2 * GIB, 0) == [3 * GIB, 5 * GIB, 6 * GIB, 8 * GIB]


def test_pcie_bytes_that_were_beyond_32_bits_do_not_wrap_there(fields: Fields) -> None:
    assert totals(fields, "pcie_tx_bytes", 5 * GIB, 1 * GIB, 3 * GIB, 2 * GIB) == [
        *(5 * GIB, 6 * GIB, 8 * GIB),
        10 * GIB,
    ]


def lose(fields: Fields) -> None:
    gpu = Gpu()
    gpu.fault = failure("lost")
    with pytest.raises(DriverError, match="Unknown Error"):
        fields.read(gpu)


@pytest.mark.parametrize("interrupt", [Fields.forget, Fields.renew, lose])
def test_pcie_bytes_that_fell_over_an_interruption_were_reset(
    fields: Fields, interrupt: Callable[[Fields], None]
) -> None:
    assert totals(fields, "pcie_rx_bytes", 3 * GIB) == [3 * GIB]
    interrupt(fields)
    assert totals(fields, "pcie_rx_bytes", 1 * GIB, 0) == [4 * GIB, 7 * GIB]


@pytest.mark.parametrize("interrupt", [Fields.forget, Fields.renew, lose])
def test_what_is_forgotten_is_not_published_while_counters_go_on(
    fields: Fields, interrupt: Callable[[Fields], None]
) -> None:
    fields.read(Gpu(energy_joules=100, power_watts=-1, temperature_celsius=failure()))
    interrupt(fields)
    assert fields.samples() == []
    assert (fields.invalid, fields.errors) == ({"power_watts": 1}, {"temperature_celsius": 1})
    assert totals(fields, "energy_joules", 30) == [130]


def test_an_answer_that_comes_after_the_gpu_was_given_up_is_not_published(fields: Fields) -> None:
    gpu = Gpu()
    gpu.during = fields.forget
    fields.read(gpu)
    assert fields.samples() == []
    fields.read(Gpu())
    assert len(fields.samples()) == len(ROWS)


def test_what_was_handed_out_is_not_changed_by_later_readings(fields: Fields) -> None:
    fields.read(Gpu(power_watts=failure()))
    samples, errors = fields.samples(), fields.errors
    held: tuple[list[Sample], Mapping[str, int]] = list(samples), dict(errors)
    fields.read(Gpu(power_watts=failure(), temperature_celsius=-300))
    assert (samples, errors) == held
