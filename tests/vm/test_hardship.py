"""The daemon outlives what it forecasts: the machine thrashes, then memory runs out, and the page stays."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from requires import needs
from vm.guest import unit
from vm.hardship import Answer, Hardship

pytestmark = needs("vm", "cc")

MIB = 1 << 20
HARD = ("thrash", "oom")
SCRAPE_TIMEOUT = 10.0
"""Of Prometheus, where nothing else is set."""

WATCHED = ("cgroup", "host")
"""Collectors that run every second."""


def test_the_machine_thrashed(hardship: Hardship) -> None:
    for key, least in (("pgmajfault", 3000), ("workingset_refault_file", 500), ("pswpin", 500), ("pswpout", 500)):
        before, _ = hardship.kernel_says("idle", "vmstat", key)
        after, _ = hardship.kernel_says("thrash", "vmstat", key)
        assert after - before >= least, key


def test_the_machine_ran_out_of_memory(hardship: Hardship) -> None:
    began, ended = hardship.phases["oom"]
    assert len(hardship.killed) >= 2
    assert {task for _, _, task in hardship.killed} == {"hog"}
    assert all(began < at < ended for at, _, _ in hardship.killed)


def test_the_daemon_had_what_its_unit_gives_it_and_at_the_end_had_not(hardship: Hardship) -> None:
    given = unit.read()
    protected = {(look.minimum, look.adjust) for look in hardship.looks("idle", *HARD)}
    assert protected == {(given.minimum, given.adjust)}
    assert {(look.minimum, look.adjust) for look in hardship.looks("exposed")} == {(0, 0)}


def test_each_scrape_is_answered(hardship: Hardship) -> None:
    assert [answer.failed for answer in hardship.answers("idle", *HARD, "exposed") if answer.failed] == []


@pytest.mark.parametrize("phase", HARD)
def test_no_gap_between_answers_is_long(hardship: Hardship, phase: str) -> None:
    # An emulated machine waits for its processors most of all; how long it does at rest says how much of it is that.
    assert hardship.longest_gap(phase) < max(SCRAPE_TIMEOUT, 20 * hardship.longest_gap("idle"))


@pytest.mark.parametrize("phase", HARD)
def test_the_protected_daemon_hardly_waits_for_memory(hardship: Hardship, phase: str) -> None:
    first, *_, last = hardship.looks(phase)
    # It is never read again, but who asks for memory when there is none has to look for some himself.
    assert last.memory_wait - first.memory_wait < 0.25 * (last.at - first.at)


@pytest.mark.parametrize("phase", HARD)
def test_the_protected_daemon_stays_in_memory(hardship: Hardship, phase: str) -> None:
    first, *_, last = hardship.looks(phase)
    assert max(look.swapped for look in hardship.looks(phase)) == 0
    assert min(look.resident for look in hardship.looks(phase)) > first.resident - 4 * MIB
    assert last.major_faults - first.major_faults < 50


def test_without_protection_it_would_not(hardship: Hardship) -> None:
    first, *_, last = hardship.looks("exposed")
    assert last.resident < first.resident - 8 * MIB


def test_each_kill_is_counted_once_with_its_owner(hardship: Hardship) -> None:
    killed = {cgroup.rpartition("/")[2]: 1.0 for _, cgroup, _ in hardship.killed}
    assert len(killed) == len(hardship.killed)
    series = {labels: value for labels, value in hardship.series("oom", "oomcast_oom_kills_total").items() if value}
    assert series == {frozenset({("owner", owner), ("limit_owner", "host")}): value for owner, value in killed.items()}
    assert hardship.series("oom", "oomcast_oom_kills_unattributed_total") == {frozenset(): 0}
    assert hardship.series("oom", "oomcast_host_oom_kills_total") == {frozenset(): len(killed)}


def test_the_end_of_the_machines_memory_is_foreseen(hardship: Hardship) -> None:
    began, _ = hardship.phases["oom"]
    assert hardship.lead > (hardship.kill - began) / 3


@pytest.mark.parametrize("page", ["thrash", "oom", "exposed"])
@pytest.mark.parametrize(
    ("name", "labels", "key"),
    [
        ("oomcast_host_pgmajfault_total", {}, "pgmajfault"),
        ("oomcast_host_refaults_total", {"kind": "file"}, "workingset_refault_file"),
        ("oomcast_host_refaults_total", {"kind": "anon"}, "workingset_refault_anon"),
        ("oomcast_host_swap_pages_total", {"direction": "in"}, "pswpin"),
        ("oomcast_host_swap_pages_total", {"direction": "out"}, "pswpout"),
        ("oomcast_host_oom_kills_total", {}, "oom_kill"),
    ],
)
def test_the_hosts_counters_are_the_kernels(
    hardship: Hardship, page: str, name: str, labels: Mapping[str, str], key: str
) -> None:
    before, after = hardship.kernel_says(page, "vmstat", key)
    assert before <= hardship.series(page, name)[frozenset(labels.items())] <= after


@pytest.mark.parametrize("page", ["thrash", "oom", "exposed"])
@pytest.mark.parametrize("kind", ["some", "full"])
def test_the_hosts_pressure_is_the_kernels(hardship: Hardship, page: str, kind: str) -> None:
    before, after = hardship.kernel_says(page, "pressure/memory", kind)
    labels = frozenset({("resource", "memory"), ("kind", kind)})
    found = hardship.series(page, "oomcast_host_pressure_seconds_total")[labels]
    assert before / 1e6 - 0.001 <= found <= after / 1e6 + 0.001
    assert found > 0.5


@pytest.mark.parametrize("cgroup", ["/system.slice/code.service", "/system.slice/own.service"])
def test_a_cgroups_faults_are_the_kernels(hardship: Hardship, cgroup: str) -> None:
    before, after = hardship.kernel_says("thrash", cgroup, "pgmajfault")
    found = hardship.series("thrash", "oomcast_cgroup_pgmajfault_total")[frozenset({("cgroup", cgroup)})]
    assert 100 < before <= found <= after


def test_what_the_daemon_says_it_waited_for_memory_is_the_kernels(hardship: Hardship) -> None:
    path = unit.read().cgroup
    labels = frozenset({("cgroup", path), ("resource", "memory"), ("kind", "some")})
    found = hardship.series("oom", "oomcast_cgroup_pressure_seconds_total")[labels]
    *_, last = hardship.looks("oom")
    first, *_ = hardship.looks("exposed")
    assert last.memory_wait - 0.001 <= found <= first.memory_wait + 0.001


@pytest.mark.parametrize("collector", WATCHED)
def test_the_largest_gap_is_what_the_scraper_saw(hardship: Hardship, collector: str) -> None:
    """The page tells how many runs there were, and when the last one ended."""
    (began, _), (_, ended) = hardship.phases["idle"], hardship.phases["oom"]
    answers = [answer for answer in hardship.answers() if began <= answer.ended <= ended and not answer.failed]
    label = f'collector="{collector}"'
    said = answers[-1].value("oomcast_collector_largest_gap_seconds", label)
    lasted = max(filter(None, (a.value("oomcast_collector_duration_seconds", label) for a in answers)))
    runs: dict[float, list[float]] = {}
    for answer in answers:
        runs.setdefault(_last(answer, label), []).append(_runs(answer, label))
    seen = [(runs[after][-1] - runs[before][0], after - before) for before, after in pairwise(runs)]
    assert said is not None
    # Starts are that far apart, ends as much more or less as runs differ in length.
    slack = lasted + 0.5
    assert max(seconds for _, seconds in seen) > said - slack
    assert [(more, seconds) for more, seconds in seen if seconds > more * said + slack] == []


def test_a_page_that_is_silent_is_a_gap_to_the_daemon_too(hardship: Hardship) -> None:
    last = hardship.answers(*HARD)[-1]
    gaps = (last.value("oomcast_collector_largest_gap_seconds", f'collector="{name}"') for name in WATCHED)
    assert max(filter(None, gaps)) > hardship.longest_gap(*HARD) / 3


def _runs(answer: Answer, label: str) -> float:
    return sum(
        answer.value("oomcast_collector_runs_total", f'{label},outcome="{outcome}"') or 0
        for outcome in ("success", "failure", "timeout")
    )


def _last(answer: Answer, label: str) -> float:
    found = answer.value("oomcast_collector_last_success_timestamp_seconds", label)
    assert found is not None
    return found
