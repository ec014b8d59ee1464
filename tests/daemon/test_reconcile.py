"""The reconciler report by report; test_reconcile_property.py has all their interleavings."""

import logging
import sys
import threading

import pytest

from fakes import FakeClock
from oomcast import reconcile
from oomcast.contract import Event
from oomcast.kills import Delays, Ledger
from oomcast.metric import Sample
from oomcast.reconcile import METRICS, Reconciler

POD = "/kubepods/pod1"
CTR = f"{POD}/ctr"
NAMES = {CTR: "ns/pod/ctr", POD: "ns/pod", "/kubepods": "kubepods"}


class Bench:
    """A reconciler with its clock; everything is told at the clock's present."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reconciler = Reconciler(self.clock, lambda path: NAMES.get(path, path), logging.getLogger("test"))
        self.settled: list[Event] = []

    def see(self, kind: str, **fields: str | int | float) -> None:
        self.reconciler.see([Event(kind, self.clock.time(), self.clock.monotonic(), kind, fields)])

    def log(self, cgroup: str = CTR, limit: str = POD, **more: str | int | float) -> None:
        fields: dict[str, str | int | float] = {"pid": 1, "comm": "python", "constraint": "memcg" if limit else ""}
        self.see("oom_kill", cgroup=cgroup, limit_cgroup=limit, **(fields | more))

    def counter(self, cgroup: str, kills: int = 1, scope: str = "subtree") -> None:
        self.see("cgroup_oom_kills", cgroup=cgroup, kills=kills, scope=scope)

    def host(self, kills: int = 1) -> None:
        self.see("host_oom_kills", kills=kills)

    def wait(self, seconds: float) -> list[Event]:
        self.clock.advance(seconds)
        settled = self.reconciler.settle()
        self.settled += settled
        return settled

    def sample(self, name: str) -> dict[tuple[str, ...], Sample]:
        found = [sample for sample in self.reconciler.samples() if sample.series.metric.name == name]
        return {tuple(value for _, value in sorted(s.series.labels, reverse=True)): s for s in found}

    def kills(self) -> dict[tuple[str, ...], object]:
        """By (owner, limit_owner), or by (owner,) when the limit is unknown."""
        return {labels: sample.value for labels, sample in self.sample("oomcast_oom_kills_total").items()}

    def total(self) -> int:
        return sum(value for value in self.kills().values() if isinstance(value, int))

    def unattributed(self) -> object:
        return self.sample("oomcast_oom_kills_unattributed_total")[()].value


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_unattributed_exists_from_the_start(bench: Bench) -> None:
    (sample,) = bench.reconciler.samples()
    assert sample.series.line(0) == "oomcast_oom_kills_unattributed_total 0.0\n"
    assert (sample.value, sample.created) == (0, 1_700_000_000.0)


def test_a_named_kill_is_counted_at_once(bench: Bench) -> None:
    bench.log()
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}


def test_the_same_kill_in_all_witnesses_counts_once(bench: Bench) -> None:
    bench.log()
    bench.log(witness="ebpf")
    for cgroup in ("/kubepods", POD, CTR):
        bench.counter(cgroup)
    bench.host()
    bench.wait(60)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}
    assert bench.unattributed() == 0


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({"limit": POD}, ("ns/pod/ctr", "ns/pod")),
        ({"limit": "", "constraint": "none"}, ("ns/pod/ctr", "host")),
        ({"limit": "", "constraint": "cpuset"}, ("ns/pod/ctr", "host")),
        ({"limit": "", "constraint": "memory_policy"}, ("ns/pod/ctr", "host")),
        ({"limit": "", "constraint": ""}, ("ns/pod/ctr",)),
        ({"limit": "", "constraint": "memcg"}, ("ns/pod/ctr",)),
        ({"limit": POD, "constraint": ""}, ("ns/pod/ctr", "ns/pod")),
    ],
)
def test_limit_owner(bench: Bench, fields: dict[str, str], labels: tuple[str, ...]) -> None:
    bench.log(**fields)
    assert bench.kills() == {labels: 1}


def test_a_counter_waits_for_its_name(bench: Bench) -> None:
    bench.counter(CTR)
    assert bench.wait(1.9) == []
    assert bench.kills() == {}
    bench.log()
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}
    (event,) = bench.wait(60)
    assert event.fields["witnesses"] == "kernel_log,cgroup"


def test_a_counter_without_a_name_is_booked_with_unknown_limit(bench: Bench) -> None:
    bench.counter(CTR, kills=3, scope="own")
    seen = bench.clock.time()
    (event,) = bench.wait(2.0)
    assert bench.kills() == {("ns/pod/ctr",): 3}
    assert event.kind == "oom_kill_counted"
    assert event.summary == "3 OOM kills in ns/pod/ctr"
    assert (event.time, event.fields["kills"], event.fields["witnesses"]) == (seen, 3, "cgroup")


def test_a_name_that_comes_late_does_not_count_again(bench: Bench) -> None:
    bench.counter(CTR)
    bench.wait(5)
    bench.log()
    bench.wait(59)
    bench.wait(60)
    assert bench.kills() == {("ns/pod/ctr",): 1}


def test_after_a_late_name_the_next_kill_counts_with_its_limit(bench: Bench) -> None:
    bench.counter(CTR)
    bench.wait(5)
    bench.log()
    bench.wait(30)
    bench.log()
    bench.counter(CTR)
    bench.wait(5)
    assert bench.kills() == {("ns/pod/ctr",): 1, ("ns/pod/ctr", "ns/pod"): 1}


def test_names_missed_long_ago_hide_no_new_kill(bench: Bench) -> None:
    """A group kill of 100, the log names one; minutes later the unit dies again and its cgroup goes unread."""
    unit = "/system.slice/vllm.service"
    bench.log(unit, unit)
    bench.counter(unit, kills=100)
    bench.wait(5)
    bench.wait(70)
    bench.log(unit, unit)
    assert bench.kills() == {(unit, unit): 2, (unit,): 99}
    bench.counter("/system.slice", kills=101)
    bench.wait(20)
    assert bench.total() == 101


def test_a_leaf_that_vanished_unread_is_booked_to_the_deepest_that_counted(bench: Bench) -> None:
    bench.counter("/kubepods")
    bench.counter(POD)
    assert bench.wait(1.9) == []
    bench.wait(1.1)
    assert bench.kills() == {("ns/pod",): 1}


def test_a_vanished_leaf_that_the_log_named_is_credited_to_its_ancestors(bench: Bench) -> None:
    bench.counter("/kubepods")
    bench.counter(POD)
    bench.wait(1)
    bench.log()
    bench.wait(30)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}


def test_a_child_read_one_run_after_its_parent_is_not_counted_twice(bench: Bench) -> None:
    bench.counter(CTR)
    bench.counter(POD)
    bench.wait(10)
    bench.counter(POD)
    bench.wait(1)
    bench.counter(CTR)
    bench.wait(10)
    assert bench.kills() == {("ns/pod/ctr",): 2}


def test_an_ancestors_booking_moves_to_the_child_that_reports_late(bench: Bench) -> None:
    bench.counter(POD)
    bench.wait(4)
    assert bench.kills() == {("ns/pod",): 1}
    bench.log()
    bench.wait(10)
    assert bench.kills() == {("ns/pod",): 1}
    # The next kill of a vanished leaf is the pod's again: the move left nothing owed.
    bench.counter(POD)
    bench.wait(10)
    assert bench.kills() == {("ns/pod",): 2}


def test_v1_parents_report_nothing_of_their_children(bench: Bench) -> None:
    bench.counter(CTR, scope="own")
    bench.counter(POD, kills=2, scope="own")
    bench.wait(4)
    assert bench.kills() == {("ns/pod/ctr",): 1, ("ns/pod",): 2}


def test_a_second_witness_of_a_named_kill_lends_no_name_to_the_next(bench: Bench) -> None:
    bench.log()
    bench.log(witness="ebpf")
    bench.counter(CTR, kills=2)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}
    bench.wait(2)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1, ("ns/pod/ctr",): 1}


def test_a_late_name_is_not_kept_for_long(bench: Bench) -> None:
    bench.counter(CTR)
    bench.wait(5)
    bench.log()
    bench.wait(11)
    bench.counter(CTR)
    bench.wait(3)
    assert bench.kills() == {("ns/pod/ctr",): 2}


def test_a_name_whose_kill_an_ancestor_had_booked_is_spent(bench: Bench) -> None:
    bench.counter(POD)
    bench.wait(4)
    bench.log()
    bench.wait(3)
    bench.counter(CTR, kills=2)
    bench.counter(POD)
    bench.wait(3)
    assert bench.kills() == {("ns/pod",): 1, ("ns/pod/ctr",): 1}


def test_group_kill(bench: Bench) -> None:
    """One naming line, three victims."""
    bench.log(pid=1)
    bench.log(pid=2, cgroup="", limit="")
    bench.log(pid=3, cgroup="", limit="")
    bench.counter(CTR, kills=3)
    bench.host(3)
    bench.wait(20)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1, ("ns/pod/ctr",): 2}
    assert bench.unattributed() == 0


def test_a_victim_that_the_kernels_counters_have_twice_counts_once(bench: Bench) -> None:
    bench.log(pid=1)
    bench.log(pid=2)
    bench.see("oom_kill_repeated", cgroup=CTR, pid=1)
    for path in (CTR, POD, "/kubepods"):
        bench.counter(path, kills=3)
    bench.host(3)
    bench.wait(20)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 2}
    assert bench.unattributed() == 0
    bench.counter(CTR)
    bench.wait(20)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 2, ("ns/pod/ctr",): 1}


def test_that_a_victim_was_counted_twice_is_heard_of_after_the_counters(bench: Bench) -> None:
    bench.counter(CTR, kills=3)
    bench.wait(1)
    bench.log(pid=1)
    bench.log(pid=2)
    bench.see("oom_kill_repeated", cgroup=CTR, pid=1)
    bench.wait(20)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 2}


def test_what_was_booked_before_it_is_told_twice_makes_up_for_the_next(bench: Bench) -> None:
    bench.counter(CTR, kills=2)
    bench.wait(5)
    bench.see("oom_kill_repeated", cgroup=CTR, pid=1)
    bench.wait(20)
    assert bench.total() == 2
    bench.counter(CTR)
    bench.wait(20)
    assert bench.total() == 2
    bench.counter(CTR)
    bench.wait(20)
    assert bench.total() == 3


def test_what_only_vmstat_saw_is_unattributed_after_ten_seconds(bench: Bench) -> None:
    bench.host(2)
    bench.wait(9.9)
    assert bench.unattributed() == 0
    (event,) = bench.wait(0.1)
    assert bench.unattributed() == 2
    assert event.fields == {"kills": 2, "owner": "", "limit_owner": "", "cgroup": "", "witnesses": "vmstat"}
    assert event.summary == "2 OOM kills in no known cgroup"
    bench.log()
    bench.wait(60)
    assert bench.kills() == {}
    assert bench.unattributed() == 2


def test_lines_without_a_cgroup_are_unattributed_without_vmstat_too(bench: Bench) -> None:
    bench.log(cgroup="", limit="")
    (event,) = bench.wait(10)
    assert bench.unattributed() == 1
    assert event.fields["witnesses"] == "kernel_log"


def test_an_unattributed_kill_takes_nothing_from_the_next_named_one(bench: Bench) -> None:
    bench.host()
    bench.wait(15)
    bench.log()
    bench.host()
    bench.wait(15)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}
    assert bench.unattributed() == 1


def test_the_event_carries_the_victim(bench: Bench) -> None:
    bench.log(pid=77, anon_bytes=5, uid=0, secret="not copied")
    (event,) = bench.wait(0)
    assert event.time == 1_700_000_000.0
    assert event.summary == "OOM kill of python (pid 77) in ns/pod/ctr, limit of ns/pod"
    assert event.fields == {
        "kills": 1,
        "owner": "ns/pod/ctr",
        "limit_owner": "ns/pod",
        "cgroup": CTR,
        "witnesses": "kernel_log",
        "pid": 77,
        "comm": "python",
        "constraint": "memcg",
        "limit_cgroup": POD,
        "anon_bytes": 5,
        "uid": 0,
    }
    assert bench.wait(0) == []


def test_userspace_kills_are_a_counter_of_their_own(bench: Bench) -> None:
    bench.see("userspace_oom_kill", cgroup=CTR, by="systemd-oomd", kills=2)
    bench.see("userspace_oom_kill", cgroup=CTR, by="systemd-oomd", kills=1)
    bench.wait(60)
    (sample,) = bench.sample("oomcast_userspace_oom_kills_total").values()
    assert sample.series.line(3) == 'oomcast_userspace_oom_kills_total{by="systemd-oomd",owner="ns/pod/ctr"} 3.0\n'
    assert (sample.value, sample.created) == (3, 1_700_000_000.0)
    assert (bench.kills(), bench.unattributed()) == ({}, 0)


def test_a_known_pair_is_there_before_its_first_kill(bench: Bench) -> None:
    bench.reconciler.know(CTR, POD)
    bench.reconciler.know(CTR, "")
    bench.clock.advance(100)
    bench.reconciler.know(CTR, POD)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 0, ("ns/pod/ctr",): 0}
    assert bench.sample("oomcast_oom_kill_last_timestamp_seconds") == {}
    bench.log()
    sample = bench.sample("oomcast_oom_kills_total")["ns/pod/ctr", "ns/pod"]
    assert (sample.value, sample.created) == (1, 1_700_000_000.0)
    (last,) = bench.sample("oomcast_oom_kill_last_timestamp_seconds").values()
    assert last.value == 1_700_000_100.0


def test_more_pairs_than_allowed_are_counted_as_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "MAX_PAIRS", 3)
    for number in range(5):
        bench.log(cgroup=f"/c{number}", limit="/")
    assert bench.kills() == {("/c0", "/"): 1, ("/c1", "/"): 1, ("/c2", "/"): 1, ("other",): 2}


def test_zeros_of_owners_long_gone_make_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "MAX_PAIRS", 3)
    for number in range(3):
        bench.reconciler.know(f"/c{number}", "/")
    bench.log(cgroup="/c0", limit="/")
    bench.clock.advance(reconcile.STALE)
    bench.reconciler.know("/c1", "/")
    bench.clock.advance(1)
    bench.log(cgroup="/new", limit="/")
    assert bench.kills() == {("/c0", "/"): 1, ("/c1", "/"): 0, ("/new", "/"): 1}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("oom_kill", {"cgroup": 5}),
        ("cgroup_oom_kills", {}),
        ("cgroup_oom_kills", {"cgroup": "", "kills": 1, "scope": "own"}),
        ("cgroup_oom_kills", {"cgroup": "/a", "kills": 0, "scope": "own"}),
        ("cgroup_oom_kills", {"cgroup": "/a", "kills": -1, "scope": "own"}),
        ("cgroup_oom_kills", {"cgroup": "/a", "kills": "1", "scope": "own"}),
        ("cgroup_oom_kills", {"cgroup": "/a", "kills": 1, "scope": "else"}),
        ("host_oom_kills", {"kills": 1.5}),
        ("userspace_oom_kill", {"cgroup": "/a", "kills": 1}),
    ],
)
def test_a_malformed_report_is_logged_once_and_costs_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture, kind: str, fields: dict[str, str | int | float]
) -> None:
    bad = Event(kind, 0.0, 0.0, "", fields)
    good = Event("oom_kill", 0.0, 0.0, "", {"cgroup": CTR, "limit_cgroup": POD})
    bench.reconciler.see([bad, good, bad])
    bench.wait(60)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}
    assert (bench.unattributed(), bench.sample("oomcast_userspace_oom_kills_total")) == (0, {})
    assert len(caplog.records) == 1
    assert kind in caplog.text


def test_other_kinds_are_ignored(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.see("segfault", pid=1)
    assert bench.wait(60) == []
    assert caplog.records == []


def test_a_failing_owner_lookup_loses_no_kill(caplog: pytest.LogCaptureFixture) -> None:
    def owner_of(path: str) -> str:
        raise OSError("gone")

    reconciler = Reconciler(FakeClock(), owner_of, logging.getLogger("test"))
    event = Event("oom_kill", 0.0, 0.0, "", {"cgroup": "/a", "constraint": "none"})
    reconciler.see([event, event])
    (sample, *_) = reconciler.samples()
    assert sample.series.line(2) == 'oomcast_oom_kills_total{limit_owner="host",owner="/a"} 2.0\n'
    assert sample.value == 2
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "path", ["/", "//", "/a/", "a", "a/b", "/../../x", "/a\n\udcff", "/" + "d/" * 2048, "/" * 4096]
)
def test_any_path_counts_once(bench: Bench, path: str) -> None:
    bench.counter(path)
    bench.log(cgroup=path, limit=path)
    bench.host()
    bench.wait(60)
    assert (bench.total(), bench.unattributed()) == (1, 0)


def test_memory_is_given_back(bench: Bench) -> None:
    """A crash loop of ever new containers, in which every third is named and every third is read."""
    ledger: Ledger = bench.reconciler._ledger
    largest = 0
    for number in range(4000):
        container = f"{POD}/{number:064x}"
        if number % 3 == 0:
            bench.log(cgroup=container)
        elif number % 3 == 1:
            bench.counter(container)
        bench.counter(POD)
        bench.counter("/kubepods")
        bench.host()
        bench.wait(10)
        largest = max(largest, len(ledger))
    bench.wait(15)
    assert (bench.total(), bench.unattributed()) == (4000, 0)
    assert largest < 260
    bench.wait(3700)
    assert len(ledger) == 0
    bench.counter(POD)
    bench.wait(10)
    assert bench.total() == 4001


def test_a_flood_is_bounded_and_exact() -> None:
    clock = FakeClock()
    ledger = Ledger(Delays())
    report = Event("x", 0.0, 0.0, "")
    booked = 0
    for second in range(40):
        for number in range(1000):
            ledger.own(f"/flood/{second}-{number}", "kernel_log", 1, report, clock.mono)
        clock.advance(10)
        ledger.settle(clock.mono)
        booked += sum(booking.kills for booking in ledger.take())
    assert booked == 40_000
    assert len(ledger) <= 21_002


def test_threads() -> None:
    bench = Bench()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(number: int) -> None:
        for _ in range(300):
            bench.log(cgroup=f"/t{number}", limit="/")
            bench.reconciler.know(f"/t{number}", "/")
            bench.reconciler.settle()
            bench.reconciler.samples()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(interval)
    assert bench.kills() == {(f"/t{number}", "/"): 300 for number in range(4)}


def test_metric_rows() -> None:
    assert [metric.name for metric in METRICS] == [
        "oomcast_oom_kills_total",
        "oomcast_oom_kill_last_timestamp_seconds",
        "oomcast_oom_kills_unattributed_total",
        "oomcast_userspace_oom_kills_total",
    ]


def test_a_name_without_a_limit_waits_for_one_that_has_it(bench: Bench) -> None:
    bench.log(limit="", witness="ebpf", shmem_bytes=4096)
    bench.counter(CTR)
    assert bench.kills() == {}
    bench.wait(1.9)
    assert bench.kills() == {}
    bench.log()
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}
    (event,) = bench.wait(60)
    assert (event.fields["witnesses"], event.fields["shmem_bytes"]) == ("ebpf,kernel_log,cgroup", 4096)
    assert bench.total() == 1
    assert bench.unattributed() == 0


def test_a_name_without_a_limit_waits_no_longer_than_for_a_name(bench: Bench) -> None:
    bench.log(limit="", witness="ebpf")
    (event,) = bench.wait(2.0)
    assert bench.kills() == {("ns/pod/ctr",): 1}
    assert (event.fields["pid"], event.fields["witnesses"]) == (1, "ebpf")
    bench.log()
    bench.wait(60)
    assert bench.total() == 1


def test_a_name_that_waits_holds_up_no_other(bench: Bench) -> None:
    bench.log(limit="", witness="ebpf", pid=1)
    bench.log(limit="", witness="ebpf", pid=2)
    bench.log(limit=CTR, pid=2)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod/ctr"): 1}
    bench.log(limit=POD, pid=1)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod/ctr"): 1, ("ns/pod/ctr", "ns/pod"): 1}
    assert bench.wait(60)[0].fields["pid"] == 2


def test_a_witness_that_knows_the_limit_is_believed_at_once(bench: Bench) -> None:
    bench.log(witness="ebpf")
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}


def test_a_kill_without_a_cgroup_is_the_logs(bench: Bench) -> None:
    bench.log(cgroup="", limit="", witness="ebpf")
    bench.log()
    bench.wait(60)
    assert bench.kills() == {("ns/pod/ctr", "ns/pod"): 1}
    assert bench.unattributed() == 0
