"""Xid errors in all interleavings: never too many, and all of a storm that one saw whole."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.xid_bench import GPU, Bench
from oomcast.xid_pairs import LATENESS


@dataclass
class Storm:
    """Errors of one code. gap: seconds since the storm before, beyond its last report. seen: by whom each was seen, and
    how many seconds later each of them tells."""

    gap: float
    errors: list[tuple[float, dict[str, float]]]


@st.composite
def _storms(draw: st.DrawFn) -> list[Storm]:
    def storm() -> Storm:
        whole = draw(st.sets(st.sampled_from(sorted(LATENESS))))
        errors = []
        for _ in range(draw(st.integers(1, 8))):
            seen = whole | draw(st.sets(st.sampled_from(sorted(LATENESS))))
            late = {name: draw(st.integers(0, 99)) / 100 * LATENESS[name] for name in sorted(seen)}
            errors.append((draw(st.integers(0, 60)) / 4, late))
        return Storm(draw(st.sampled_from((0.0, 3.0, 10.5, 30.0, 610.0))), errors)

    return [storm() for _ in range(draw(st.integers(1, 4)))]


@settings(max_examples=300, deadline=None)
@given(_storms())
def test_never_too_many_and_a_storm_seen_whole_is_counted_whole(storms: list[Storm]) -> None:
    bench = Bench()
    true, reports, expected = _schedule(storms)
    for moment, witness in reports:
        bench.clock.advance(moment - bench.clock.monotonic())
        bench.reconciler.settle()
        bench.line(48) if witness == "kernel_log" else bench.nvml(48) if witness == "nvml" else bench.dcgm(48)
        counted = _count(bench)
        assert counted <= sum(time <= moment for time in true)
    assert _count(bench) >= expected
    assert len(bench.wait(2)) <= _count(bench)


def _schedule(storms: list[Storm]) -> tuple[list[float], list[tuple[float, str]], int]:
    """When the errors happened, when who tells of one, and how many at least have to be counted."""
    true: list[float] = []
    reports: list[tuple[float, str]] = []
    expected = 0
    ended = 1000.0
    for storm in storms:
        began = ended + storm.gap
        for after, late in storm.errors:
            true.append(began + after)
            reports += [(began + after + seconds, name) for name, seconds in late.items()]
        ended = max([began, *(moment for moment, _ in reports)])
        whole = [name for name in LATENESS if all(name in late for _, late in storm.errors)]
        if any(storm.gap > LATENESS[name] for name in whole) or (storm is storms[0] and whole):
            expected += len(storm.errors)
    return true, sorted(reports), expected


def _count(bench: Bench) -> int:
    value = bench.sample()[GPU, "48"].value
    assert isinstance(value, int)
    return value
