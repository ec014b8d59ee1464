"""Whatever happens in whatever order: never too many, in the end all, and under the right names."""

import logging

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.oom_kernel import LEAVES, PATHS, Kernel, Kill, Machine
from fakes import FakeClock
from oomcast.reconcile import Reconciler

QUIET = 20  # seconds after the last kill: the delay of the host, the latest log line and a run of everything


def _ancestors(path: str) -> list[str]:
    return [other for other in PATHS if (path + "/").startswith(other + "/")]


@st.composite
def _kill(
    draw: st.DrawFn, slowest: float, paths: tuple[str, ...], vanishing: tuple[str, ...], *, twice: bool = False
) -> Kill:
    path = draw(st.sampled_from(paths))
    seconds = st.integers(0, int(slowest * 10)).map(lambda tenths: tenths / 10 + 0.03)
    return Kill(
        at=draw(st.integers(0, 400)) / 20 * draw(st.sampled_from((1, 10))),
        path=path,
        limit=draw(st.sampled_from([*_ancestors(path), ""])),
        named=draw(st.booleans()),
        log=draw(seconds),
        ebpf=draw(st.none() | seconds),
        vanish=draw(st.none() | st.integers(1, 30).map(lambda tenths: tenths / 10)) if path in vanishing else None,
        twice=twice and draw(st.booleans()),
    )


def _machines(**fixed: bool) -> st.SearchStrategy[Machine]:
    drawn = {name: st.booleans() for name in ("log", "ebpf", "vmstat", "cgroups", "parents_first")}
    drawn |= {name: st.just(value) for name, value in fixed.items()}
    return st.builds(Machine, version=st.sampled_from((1, 2)), skew=st.sampled_from((0.0, 0.02, 0.1)), **drawn)


def _counts(reconciler: Reconciler) -> tuple[dict[tuple[str, str], int], int]:
    by_pair: dict[tuple[str, str], int] = {}
    unattributed = 0
    for sample in reconciler.samples():
        assert isinstance(sample.value, int | float)
        labels = dict(sample.series.labels)
        if sample.series.metric.name == "oomcast_oom_kills_total":
            by_pair[labels["owner"], labels.get("limit_owner", "")] = int(sample.value)
        elif sample.series.metric.name == "oomcast_oom_kills_unattributed_total":
            unattributed = int(sample.value)
    return by_pair, unattributed


def _by_owner(by_pair: dict[tuple[str, str], int]) -> dict[str, int]:
    owners = dict.fromkeys(PATHS, 0)
    for (owner, _), count in by_pair.items():
        owners[owner.removeprefix("owner of ")] += count
    return owners


def _play(machine: Machine, kills: list[Kill]) -> tuple[Kernel, dict[tuple[str, str], int], int]:
    clock = FakeClock()
    reconciler = Reconciler(clock, lambda path: f"owner of {path}", logging.getLogger("test"))
    kernel = Kernel(machine, reconciler, clock)

    def never_too_many() -> None:
        by_pair, unattributed = _counts(reconciler)
        assert sum(by_pair.values()) + unattributed <= kernel.seen.kills

    kernel.check = never_too_many
    # Time in which nothing happens would be all of the run time.
    kernel.play(kills, until=max((kill.at for kill in kills), default=0) + QUIET)
    return kernel, *_counts(reconciler)


@settings(max_examples=80, deadline=None)
@given(_machines(), st.lists(_kill(5.0, PATHS, PATHS), max_size=12))
def test_every_kill_that_a_whole_witness_saw_is_counted_once(machine: Machine, kills: list[Kill]) -> None:
    kernel, by_pair, unattributed = _play(machine, kills)
    total = sum(by_pair.values()) + unattributed
    if machine.log or machine.vmstat:
        assert total == len(kills)
    named = max((sum(paths.values()) for paths in kernel.seen.named.values()), default=0)
    assert total >= named
    if machine.version == 1:
        assert total >= sum(kernel.seen.counted.values())
    else:
        assert total >= kernel.seen.counted.get("/a", 0) + kernel.seen.counted.get("/b", 0)


@settings(max_examples=80, deadline=None)
@given(_machines(), st.lists(_kill(5.0, PATHS, PATHS), max_size=12))
def test_no_owner_is_blamed_for_others_kills(machine: Machine, kills: list[Kill]) -> None:
    _, by_pair, _ = _play(machine, kills)
    for path, count in _by_owner(by_pair).items():
        blamable = [k for k in kills if k.path == path or (machine.version == 2 and k.path.startswith(path + "/"))]
        assert count <= len(blamable)
    for (owner, limit_owner), count in by_pair.items():
        if limit_owner:
            limits = {f"owner of {k.limit}" if k.limit else "host": k.limit for k in kills}
            true = [k for k in kills if f"owner of {k.path}" == owner and k.limit == limits[limit_owner]]
            assert count <= len(true)


@settings(max_examples=80, deadline=None)
@given(_machines(cgroups=True, vmstat=True), st.lists(_kill(1.0, PATHS, LEAVES), max_size=12))
def test_what_a_witness_names_in_time_lands_on_its_owner(machine: Machine, kills: list[Kill]) -> None:
    kernel, by_pair, unattributed = _play(machine, kills)
    owners = _by_owner(by_pair)
    assert sum(owners.values()) + unattributed == len(kills)
    for path in PATHS:
        named = max(witness.get(path, 0) for witness in kernel.seen.named.values())
        assert owners[path] >= named
        counted = kernel.seen.counted.get(path, 0)
        below = owners if machine.version == 2 else {}
        inside = sum(count for other, count in below.items() if other.startswith(path + "/"))
        assert owners[path] + inside >= counted


@settings(max_examples=80, deadline=None)
@given(_machines(log=True, cgroups=True), st.lists(_kill(1.0, PATHS, LEAVES, twice=True), max_size=12))
def test_what_the_counters_have_twice_is_counted_once_and_on_its_owner(machine: Machine, kills: list[Kill]) -> None:
    kernel, by_pair, unattributed = _play(machine, kills)
    owners = _by_owner(by_pair)
    assert sum(owners.values()) + unattributed == len(kills)
    for path in PATHS:
        named = max(witness.get(path, 0) for witness in kernel.seen.named.values())
        blamable = [k for k in kills if k.path == path or (machine.version == 2 and k.path.startswith(path + "/"))]
        assert named <= owners[path] <= len(blamable)
