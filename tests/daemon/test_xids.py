"""Xid errors report by report; test_xids_property.py has all their interleavings."""

import pytest

from daemon.xid_bench import FELL, GPU, PCI, Bench, Value
from oomcast.contract import Event
from oomcast.xids import EXPECTED, MAX_GPUS, MAX_OPEN, MAX_PAIRS, MAX_WAITING

OTHER_GPU, OTHER_PCI = "GPU-b", "0000:5e:00.0"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_codes_that_matter_are_there_at_0_once_the_gpu_is_seen() -> None:
    bench = Bench(seen=False)
    assert bench.reconciler.samples() == []
    bench.gpu_seen()
    bench.gpu_seen()
    assert {key: s.value for key, s in bench.sample().items()} == {(GPU, str(xid)): 0 for xid in EXPECTED}
    assert bench.sample("oomcast_xid_last_timestamp_seconds") == {}


def test_a_gpu_without_a_pci_address_has_its_zeros_too() -> None:
    bench = Bench(seen=False)
    bench.gpu_seen(pci="")
    assert (GPU, "79") in bench.sample()


def test_an_error_that_all_see_counts_once_whoever_is_first(bench: Bench) -> None:
    bench.line(79)
    bench.nvml(79)
    bench.clock.advance(1)
    bench.nvml(48)
    bench.line(48)
    bench.clock.advance(40)
    bench.dcgm(48)
    assert bench.counts() == {(GPU, "79"): 1, (GPU, "48"): 1}
    last = bench.sample("oomcast_xid_last_timestamp_seconds")
    assert {key: sample.value for key, sample in last.items()} == {
        (GPU, "79"): 1_700_000_000.0,
        (GPU, "48"): 1_700_000_001.0,
    }


def test_the_time_of_an_error_is_that_of_the_line(bench: Bench) -> None:
    bench.line(79, ago=0.5)
    assert bench.sample("oomcast_xid_last_timestamp_seconds")[GPU, "79"].value == 1_699_999_999.5


def test_gpus_and_codes_are_counted_apart(bench: Bench) -> None:
    bench.gpu_seen(OTHER_GPU, OTHER_PCI)
    bench.line(79)
    bench.line(79, OTHER_PCI)
    bench.nvml(79, OTHER_GPU)
    bench.nvml(94, OTHER_GPU)
    assert bench.counts() == {(GPU, "79"): 1, (OTHER_GPU, "79"): 1, (OTHER_GPU, "94"): 1}


def test_what_one_missed_is_not_held_against_what_it_tells_later(bench: Bench) -> None:
    bench.line(62)
    bench.wait(10.1)
    bench.nvml(62)
    assert bench.counts() == {(GPU, "62"): 2}
    bench.wait(10.1)
    bench.line(62)
    bench.nvml(62)
    assert bench.counts() == {(GPU, "62"): 3}


def test_within_a_storm_a_late_report_is_none_of_a_new_error(bench: Bench) -> None:
    bench.line(31)
    bench.clock.advance(9)
    bench.nvml(31)
    assert bench.counts() == {(GPU, "31"): 1}


def test_a_storm_counts_as_the_one_that_saw_most_of_it(bench: Bench) -> None:
    for _ in range(100):
        bench.nvml(31)
    for _ in range(70):  # the log was overrun
        bench.line(31)
    assert bench.counts() == {(GPU, "31"): 100}


def test_a_witness_that_began_later_catches_up_during_the_storm(bench: Bench) -> None:
    for _ in range(5):
        bench.line(31)
    for _ in range(3):  # the log is lost, the driver's events have just begun
        bench.clock.advance(6)
        bench.nvml(31)
    # The first could be what the log had told before; at the second the count had stood for more than ten seconds.
    assert bench.counts() == {(GPU, "31"): 5 + 2}


def test_dcgm_may_tell_minutes_later(bench: Bench) -> None:
    bench.line(79)
    bench.clock.advance(300)
    bench.dcgm(79)
    assert bench.counts() == {(GPU, "79"): 1}
    bench.clock.advance(601)
    bench.dcgm(79)
    assert bench.counts() == {(GPU, "79"): 2}


def test_an_address_waits_for_its_uuid() -> None:
    bench = Bench(seen=False)
    bench.line(79)
    bench.line(48, OTHER_PCI)
    bench.wait(9.9)
    assert bench.counts() == {}
    bench.gpu_seen()
    bench.nvml(79)
    assert bench.counts() == {(GPU, "79"): 1}
    bench.wait(0.1)
    assert bench.counts() == {(GPU, "79"): 1, (OTHER_PCI, "48"): 1}


def test_what_was_counted_under_an_address_stays_there() -> None:
    bench = Bench(seen=False)
    bench.line(79)
    bench.wait(10)
    bench.gpu_seen()
    assert bench.counts() == {(PCI, "79"): 1}
    bench.line(79)
    assert bench.counts() == {(PCI, "79"): 1, (GPU, "79"): 1}


def test_a_replaced_gpu_has_the_next_error_of_the_address(bench: Bench) -> None:
    bench.line(79)
    bench.gpu_seen(OTHER_GPU, PCI)
    bench.line(79)
    assert bench.counts() == {(GPU, "79"): 1, (OTHER_GPU, "79"): 1}


@pytest.mark.parametrize("first", ["line", "nvml"])
def test_an_error_without_a_number_that_the_log_numbers(bench: Bench, first: str) -> None:
    for _ in range(2):
        if first == "line":
            bench.line(149)
            bench.clock.advance(2)
            bench.nvml(999)
        else:
            bench.nvml(999)
            bench.clock.advance(2)
            bench.line(149)
        bench.wait(11)
    assert bench.counts() == {(GPU, "149"): 2}


def test_an_error_without_a_number_that_the_log_does_not_have(bench: Bench) -> None:
    bench.gpu_seen(OTHER_GPU, OTHER_PCI)
    bench.line(149)
    bench.clock.advance(2.1)
    bench.nvml(999)
    bench.line(149, OTHER_PCI)
    bench.clock.advance(2.1)
    bench.line(149)
    bench.wait(8)
    assert (GPU, "999") not in bench.counts()
    bench.wait(1)
    assert bench.counts() == {(GPU, "149"): 2, (OTHER_GPU, "149"): 1, (GPU, "999"): 1}


def test_dcgm_may_tell_of_an_error_without_a_number_minutes_later(bench: Bench) -> None:
    bench.line(149)
    bench.clock.advance(300)
    bench.dcgm(999)
    bench.wait(11)
    assert bench.counts() == {(GPU, "149"): 1}


def test_an_error_without_a_number_awaits_the_uuid_of_the_line() -> None:
    bench = Bench(seen=False)
    bench.nvml(999)
    bench.line(149)
    bench.wait(9)
    bench.gpu_seen()
    bench.wait(30)
    assert bench.counts() == {(GPU, "149"): 1}


def test_an_error_without_a_gpu_counts_where_no_line_has_its_number(bench: Bench) -> None:
    bench.nvml(79, gpu="")
    bench.nvml(48, gpu="")
    bench.line(79)
    bench.wait(11)
    assert bench.counts() == {(GPU, "79"): 1, ("", "48"): 1}


def test_each_counted_error_is_an_event_with_what_all_witnesses_know(bench: Bench) -> None:
    bench.nvml(79)
    bench.line(79, ago=0.25, pid=4242, process="python", mig="5")
    bench.nvml(48)
    assert bench.wait(1.9) == []
    fell, other = bench.wait(0.1)
    assert fell == Event(
        "xid_counted",
        1_699_999_999.75,
        999.75,
        "Xid 79 on GPU GPU-a",
        {
            "gpu": GPU,
            "xid": 79,
            "witnesses": "kernel_log,nvml",
            "pci": PCI,
            "message": FELL,
            "pid": 4242,
            "process": "python",
            "mig": "5",
        },
    )
    assert other.fields == {"gpu": GPU, "xid": 48, "witnesses": "nvml", "pci": PCI}
    assert bench.wait(60) == []


def test_each_error_of_a_storm_gets_its_own_line(bench: Bench) -> None:
    for pid in (1, 2, 3):
        bench.line(31, pid=pid)
    for _ in range(4):
        bench.nvml(31)
    found = [(event.fields.get("pid"), event.fields["witnesses"]) for event in bench.wait(2)]
    assert found == [(1, "kernel_log,nvml"), (2, "kernel_log,nvml"), (3, "kernel_log,nvml"), (None, "nvml")]


def test_a_storm_keeps_the_timeline_bounded_and_the_count_whole(bench: Bench) -> None:
    for _ in range(3 * MAX_OPEN):
        bench.line(31)
    bench.nvml(31)
    assert bench.counts() == {(GPU, "31"): 3 * MAX_OPEN}
    assert len(bench.wait(0)) == MAX_OPEN  # those that made room early; of them the newest
    assert len(bench.wait(2)) == MAX_OPEN


def test_a_storm_of_an_unknown_gpu_waits_in_a_bounded_queue() -> None:
    bench = Bench(seen=False)
    for _ in range(MAX_WAITING + 3):
        bench.line(31)
    assert bench.counts() == {(PCI, "31"): 3}
    bench.wait(10)
    assert bench.counts() == {(PCI, "31"): MAX_WAITING + 3}


def test_codes_beyond_the_bound_are_counted_as_other(bench: Bench) -> None:
    free = MAX_PAIRS - len(EXPECTED)
    for code in range(1000, 1000 + free + 3):
        bench.nvml(code)
    bench.line(79)
    for gpu in range(MAX_GPUS + 10):
        bench.nvml(13, f"GPU-{gpu}")
    counts = bench.counts()
    assert counts[GPU, "other"] == 3
    assert counts[GPU, "79"] == 1
    assert counts["GPU-0", "other"] == 1
    assert counts["other", "other"] == 11
    assert len(bench.sample()) == MAX_PAIRS + MAX_GPUS + 1


def test_witnesses_of_other_codes_stay_with_their_own_errors(bench: Bench) -> None:
    for code in range(1000, 1000 + MAX_PAIRS):
        bench.nvml(code)
    bench.wait(11)
    bench.nvml(2000)
    bench.line(3000)
    (event,) = bench.wait(2)
    assert (event.fields["xid"], event.fields["witnesses"]) == (2000, "nvml")
    assert "message" not in event.fields


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("xid", {}),
        ("xid", {"pci": PCI}),
        ("xid", {"pci": PCI, "xid": "79"}),
        ("xid", {"pci": PCI, "xid": 79.0}),
        ("xid", {"pci": PCI, "xid": True}),
        ("xid", {"pci": PCI, "xid": 0}),
        ("xid", {"pci": PCI, "xid": 10**6}),
        ("xid", {"pci": "", "xid": 79}),
        ("xid", {"pci": 5, "xid": 79}),
        ("xid", {"xid": 79, "witness": "nvml"}),
        ("xid", {"gpu": "G" * 101, "xid": 79, "witness": "nvml"}),
        ("xid", {"gpu": GPU, "xid": 79, "witness": "gossip"}),
        ("gpu_seen", {"pci": OTHER_PCI}),
        ("gpu_seen", {"gpu": "", "pci": OTHER_PCI}),
        ("gpu_seen", {"gpu": GPU, "pci": "0" * 101}),
    ],
)
def test_a_malformed_report_is_told_once_and_costs_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture, kind: str, fields: dict[str, Value]
) -> None:
    good = Event("xid", 1.0, 1.0, "", {"pci": PCI, "xid": 79})
    for _ in range(3):
        bench.reconciler.see([Event(kind, 1.0, 1.0, "", fields), good])
    bench.wait(20)
    assert bench.counts() == {(GPU, "79"): 3}
    assert [record.getMessage()[:30] for record in caplog.records] == [f"ignored a malformed report {kind}"[:30]]


def test_addresses_beyond_the_bound_are_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MAX_GPUS):
        bench.gpu_seen(f"GPU-{number}", f"{number:04x}:00:00.0")
    assert len(caplog.records) == 1
    bench.line(79)
    assert bench.counts() == {(GPU, "79"): 1}


def test_events_of_other_kinds_are_none_of_ours(bench: Bench) -> None:
    bench.see("oom_kill", {"xid": 79, "pci": PCI})
    assert bench.counts() == {}
