"""Kills by a real kernel with cgroup v2: each is counted once, on its cgroup, under the limit that was met."""

import pytest

from requires import needs
from vm.results import Results

pytestmark = needs("vm", "cc")

KILLED = {
    "plain": ("/plain", "/plain", 1),
    "climbing for nine seconds": ("/climb", "/climb", 1),
    "all of a group": ("/group", "/group", 3),
    "limit on the parent alone": ("/parent/child", "/parent", 1),
    "lower limit on the child": ("/wide/narrow", "/wide/narrow", 1),
    "lower limit on the parent": ("/narrow/wide", "/narrow", 1),
    "after its swap was full": ("/swap-oom", "/swap-oom", 1),
    "in a cgroup removed at once": ("/removed", "/removed", 1),
    "out of the host's memory": ("/global", "host", 1),
}
"""Victim's cgroup, whose limit it was, number of victims."""

SURVIVED = ("/high", "/swap-held", "/thrash")


@pytest.mark.parametrize(("owner", "limit", "victims"), KILLED.values(), ids=KILLED)
def test_each_kill_is_counted_once_with_cgroup_and_limit(guest: Results, owner: str, limit: str, victims: int) -> None:
    assert [end.status for end in guest.ends(owner)] == [-9] * victims
    assert guest.kills(owner) == {limit: victims}


def test_nothing_else_is_counted(guest: Results) -> None:
    counted = sum(guest.series("oomcast_oom_kills_total").values())
    assert counted == sum(victims for _, _, victims in KILLED.values())
    assert guest.value("oomcast_oom_kills_unattributed_total") == 0


def test_the_kernel_has_the_first_victim_of_a_group_twice(guest: Results) -> None:
    # Else the scenario shows nothing; the limits of what the kernel counts are those of its own race.
    assert guest.counts("/group", "memory.events")["oom_kill"] in (3, 4)
    assert guest.counts("/group", "memory.events")["oom_group_kill"] == 1


@pytest.mark.parametrize("cgroup", [path for path, *_ in KILLED.values() if path not in ("/removed", "/global")])
def test_the_counter_of_a_cgroup_is_the_kernels(guest: Results, cgroup: str) -> None:
    kernel = guest.counts(cgroup, "memory.events")["oom_kill"]
    found = guest.value("oomcast_cgroup_oom_kills_total", "after", cgroup=cgroup, scope="hierarchical")
    assert found == kernel > 0


@pytest.mark.parametrize("cgroup", ["/parent", "/narrow", "/wide"])
def test_an_ancestor_repeats_its_descendants_and_is_not_blamed(guest: Results, cgroup: str) -> None:
    assert guest.value("oomcast_cgroup_oom_kills_total", "after", cgroup=cgroup, scope="hierarchical") == 1
    assert guest.counts(cgroup, "memory.events.local")["oom_kill"] == 0
    assert guest.kills(cgroup) == {}


def test_the_kernels_log_is_counted_line_by_line(guest: Results) -> None:
    lines = [text for _, text in guest.kmsg if "Killed process " in text]
    assert guest.value("oomcast_kernel_log_oom_kills_total") == len(lines)
    assert guest.value("oomcast_kernel_log_lost_records_total") == 0


def test_sigkill_from_outside_is_no_oom_kill(guest: Results) -> None:
    assert [end.status for end in guest.ends("/control")] == [-9]
    assert guest.kills("/control") == {}
    assert guest.value("oomcast_cgroup_oom_kills_total", cgroup="/control", scope="hierarchical") == 0


@pytest.mark.parametrize("cgroup", SURVIVED)
def test_who_only_comes_to_the_limit_is_not_counted(guest: Results, cgroup: str) -> None:
    assert guest.counts(cgroup, "memory.events")["oom_kill"] == 0
    assert guest.kills(cgroup) == {}


@pytest.mark.parametrize("cgroup", ["/plain", "/climb", "/group", "/swap-oom", "/wide/narrow", "/removed", "/control"])
def test_the_counter_of_a_limited_cgroup_is_there_at_0_before(guest: Results, cgroup: str) -> None:
    assert guest.value("oomcast_oom_kills_total", "before", owner=cgroup, limit_owner=cgroup) == 0
