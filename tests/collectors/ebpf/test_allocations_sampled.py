"""libc for a share of the time, and not at all any more where that is above the budget."""

from collectors.ebpf.followed import counted, follow, own, program
from collectors.ebpf.live import Live
from requires import needs

pytestmark = needs("ebpf", "cc")


def names(live: Live, process: str) -> set[str]:
    """Of the metrics that libc's allocations have."""
    return {metric for metric, labels in live.rows if labels[:2] == (process, "libc")}


def test_counters_are_estimates_and_nothing_is_outstanding() -> None:
    settings = {"libc": "sampled", "libc_share": 0.5, "budget": 100}
    targets = {"engines": False, "processes": [own("storm")]}
    with (
        program("storm", "24000", "2000") as (name, target),
        Live(["allocations"], targets, {"allocations": settings}) as live,
    ):
        follow(live, name)
        said = target.step()
        live.settle()
        counts = counted(live, name, "libc")
        share = live.value("oomcast_alloc_followed_ratio", "libc")
        kept = "oomcast_alloc_outstanding_bytes", "oomcast_alloc_freed_bytes_total", "oomcast_alloc_unknown_frees_total"
        assert not names(live, name).intersection(kept)
        assert live.value("oomcast_alloc_outstanding_bytes", name, "brk", "0") is not None
    assert share is not None
    assert 0.3 < share < 0.7
    assert counts["allocs"] is not None
    assert 0.6 < counts["allocs"] / said["allocs"] < 1.5
    assert counts["bytes"] == 64 * counts["allocs"]


def test_above_the_budget_nothing_is_outstanding() -> None:
    settings = {"libc": "full", "budget": 0.5}
    targets = {"engines": False, "processes": [own("busy")]}
    with (
        program("storm", "20000", "20000", called="busy") as (name, target),
        Live(["allocations"], targets, {"allocations": settings}) as live,
    ):
        follow(live, name)
        assert "oomcast_alloc_outstanding_bytes" in names(live, name)
        target.step()
        live.until(lambda: live.value("oomcast_alloc_followed_ratio", "libc") == 0)
        assert [event.kind for event in live.events] == ["ebpf_budget"]
        assert "oomcast_alloc_outstanding_bytes" not in names(live, name)
        assert live.value("oomcast_alloc_followed_ratio", "brk") == 1
