"""The tables of the fleet."""

from collections import Counter
from collections.abc import Mapping, Sequence

from fleet_disk import HOURS, Block
from fleet_history import Cost
from fleet_record import Told
from fleet_watch import ALERTS, Fleet, Watched
from machine import MB, median, table

BUDGET = 2000
"""Series of a node at defaults."""

_TOP = 12
_KNOWN = 0.001
_MANY = (500, 2000)


def show_pages(pages: Sequence[Told]) -> None:
    columns = ("node", "series", "of these _created", "text kB", "gzip kB", f"<= {BUDGET:,}")
    rows = [
        (str(t.shape), f"{t.series:,}", t.created, f"{t.text / 1e3:.0f}", f"{t.gzip / 1e3:.1f}",
         "within" if t.series <= BUDGET else "above")
        for t in pages
    ]  # fmt: skip
    table("fleet: one scrape", columns, rows)


def show_names(one: Told) -> None:
    top = Counter(one.families).most_common(_TOP)
    rows = [(name, number, f"{number / one.series:.1%}") for name, number in top]
    table(f"fleet: the names with the most series, of {one.shape}", ("name", "series", "share"), rows)


def show_phases(what: str, phases: Mapping[str, Watched]) -> None:
    columns = (
        "", "s", "CPU cores", "to no rules", "RSS GB", "head series", "samples/s", "MB/s as text", "gzip", "WAL MB/s",
        "remote MB/s", "remote samples/s", "scrapes made", "CPU cores of the played nodes",
    )  # fmt: skip
    floor = phases["no rules"]
    rows = [
        (name, f"{w.seconds:.0f}", f"{w.cpu:.2f}", f"{w.cpu / floor.cpu:.2f}", f"{w.rss / 1e9:.2f}", f"{w.series:,.0f}",
         f"{w.samples:,.0f}", f"{w.text / MB:.2f}", f"{w.wire / MB:.2f}", f"{w.wal / MB:.2f}",
         f"{w.remote / MB:.2f}", f"{w.remote_samples:,.0f}",
         f"{w.made:.0%}", f"{w.server:.2f}")
        for name, w in phases.items()
    ]  # fmt: skip
    table(f"fleet: {what}", columns, rows)


def show_groups(what: str, watched: Watched, nodes: int) -> None:
    """Where a group takes its interval, Prometheus has as many nodes as it can have: rules of a group wait in turn."""
    columns = ("group", "every", "seen", "median s", "longest s", "median of its interval", "missed", "full at nodes")
    rows = []
    for name, group in watched.groups.items():
        took = group.seconds
        # What hardly anything is known of fits whatever number of nodes.
        share = median(took) / group.interval if took else 0
        full = f"{nodes / share:,.0f}" if share >= _KNOWN else ""
        cells = [f"{median(took):.3f}", f"{max(took):.3f}", f"{share:.1%}"] if took else [""] * 3
        rows.append([name, f"{group.interval:.0f} s", len(took), *cells, f"{group.missed:.0f}", full])
    table(f"fleet: rule groups, {what}", columns, rows)


def show_alerts(what: str, fleet: Fleet, firing: Mapping[str, float]) -> None:
    rows = [(name, fleet.numbers[kind], f"{firing.get(name, 0):.0f}") for kind, name in ALERTS.items()]
    rows += [(name, 0, f"{number:.0f}") for name, number in firing.items() if name not in ALERTS.values()]
    table(f"fleet: alerts, {what}", ("alert", "nodes in that trouble", "nodes it fires for"), rows)


def show_costs(what: str, costs: Sequence[Cost], nodes: int) -> None:
    """Scaled from so many nodes."""
    columns = ("rule", "every", "samples a node", *(f"millions at {many:,} nodes" for many in _MANY), "peak a node")
    rows = [
        (f"{c.rule} ({c.group.removeprefix('oomcast-')})", f"{c.interval:.0f} s", f"{c.samples / nodes:,.0f}",
         *(f"{c.samples / nodes * many / 1e6:.1f}" for many in _MANY), f"{c.peak / nodes:,.0f}")
        for c in costs[:_TOP]
    ]  # fmt: skip
    table(f"fleet: samples that one evaluation reads after three days, {what}", columns, rows)
    groups: dict[str, list[Cost]] = {}
    for cost in costs:
        groups.setdefault(cost.group, []).append(cost)
    totals = [(name, of[0].interval, sum(cost.samples for cost in of) / nodes) for name, of in groups.items()]
    lines = [(name, f"{every:.0f} s", f"{read:,.0f}", f"{read / every:,.0f}") for name, every, read in totals]
    table(f"fleet: the same by group, {what}", ("group", "every", "samples a node", "a node and second"), lines)


def show_slowest(what: str, slowest: Sequence[tuple[float, str, str]]) -> None:
    rows = [(name, group.removeprefix("oomcast-"), f"{seconds:.3f}") for seconds, group, name in slowest[:_TOP]]
    table(f"fleet: the slowest rules, one evaluation, {what}", ("rule", "group", "s"), rows)


def show_blocks(blocks: Mapping[str, Block]) -> None:
    columns = ("nodes", "series", "changing", "samples", "bytes a sample", "of these chunks", "index bytes a series")
    rows = [
        (what, f"{b.series:,}", f"{b.changing:.0%}", f"{b.samples:,}",
         f"{(b.chunk_bytes + b.index_bytes) / b.samples:.2f}", f"{b.chunk_bytes / b.samples:.2f}",
         f"{b.index_bytes / b.series:.0f}")
        for what, b in blocks.items()
    ]  # fmt: skip
    table(f"fleet: a block of {HOURS} hours on disk", columns, rows)
