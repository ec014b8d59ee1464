"""What programs in the kernel cost the processes that are followed, beside BCC's own memleak, and all others."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build

import ebpf_bystanders
import peers
from machine import HERE, MB, cpu, end, median, memory, table, verdict
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.bcc import HEADERS

_PAIRS, _STEPS = 1_000, 40
"""A step is five rounds, of which the quickest is told: short ones, so that in most steps there is one that nothing
interrupted."""

_REPEATS = 5
_PYTHON = "/usr/bin/python3"
"""The one that has the distribution's BCC."""

_BURST, _PAUSE = 100, 0.01
_ERROR = 0.3
_IDLE = 10.0
_PATIENCE = 60.0

_PAIR = {"kind": "own", "library": "libc.so*", "allocate": "malloc", "free": "free"}


class _Variant(NamedTuple):
    """kind: whose cost is looked at."""

    name: str
    allocations: Mapping[str, Any] | None
    kind: str = ""


_VARIANTS = (
    _Variant("not followed", None),
    _Variant("flow only (the default)", {}),
    _Variant("a pair of the settings (malloc, free)", {"pairs": [_PAIR]}, "own"),
    _Variant("libc full, with stacks and ages", {"libc": "full", "budget": 100}, "libc"),
)
_SAMPLED = _Variant("libc sampled, 5 % of the time", {"libc": "sampled", "budget": 100}, "libc")
_MEMLEAK = "memleak"


class _Cost(NamedTuple):
    """Nanoseconds of a malloc and its free: as the target measured, and what the child thinks that it added."""

    measured: float
    estimated: float | None = None


class _Child(NamedTuple):
    name: str
    rss: float
    pss: float
    percent: float


def run(minute: float = 60) -> None:
    """Prints the tables. minute: seconds over which sampling is watched. Raises peers.Missing without a compiler."""
    costs: dict[str, list[_Cost]] = {name: [] for name in (*(variant.name for variant in _VARIANTS), _MEMLEAK)}
    children: list[_Child] = []
    for repeat in range(_REPEATS):
        for variant in _VARIANTS:
            cost, child = _step(variant, watched=not repeat)
            costs[variant.name].append(cost)
            if child:
                children.append(child)
        try:
            costs[_MEMLEAK].append(_Cost(_memleak()))
        except peers.Missing as reason:
            print(f"\n{_MEMLEAK}: not measured: {reason}", flush=True)
    costs[_SAMPLED.name] = [_sampled(minute)]
    _show_costs(costs)
    columns = ("child, one target", "RSS MB", "PSS MB", "CPU % of a core")
    rows = [(c.name, f"{c.rss / MB:.1f}", f"{c.pss / MB:.1f}", f"{c.percent:.2f}") for c in children]
    table("ebpf: the child while its target does nothing", columns, rows)
    ebpf_bystanders.run()


def _show_costs(costs: Mapping[str, Sequence[_Cost]]) -> None:
    plain = median(cost.measured for cost in costs[_VARIANTS[0].name])
    memleak = [cost.measured - plain for cost in costs[_MEMLEAK]]
    rows = []
    for name, all_of_it in costs.items():
        if not all_of_it:
            continue
        measured = median(cost.measured for cost in all_of_it)
        added = measured - plain
        ratio = f"{added / median(memleak):.2f}" if memleak else ""
        row = [name, f"{measured:,.0f}", f"{added:,.0f}", ratio, "", "", ""]
        estimates = [cost.estimated for cost in all_of_it if cost.estimated is not None]
        if estimates:
            error = median(estimates) / added - 1
            row[4:] = [f"{median(estimates):,.0f}", f"{error:+.0%}", verdict(abs(error), _ERROR)]
        rows.append(row)
    columns = ("malloc(64) and free", "ns a pair", "ns added", "to memleak", "child's estimate", "error", "<= 30 %")
    table(f"ebpf: what a followed process pays, medians of {_REPEATS} rounds in turn", columns, rows)


def _step(variant: _Variant, *, watched: bool) -> tuple[_Cost, _Child | None]:
    with Target(build("bench"), str(_PAIRS), patience=_PATIENCE) as target:
        if variant.allocations is None:
            return _Cost(_steps(target)[0]), None
        with _followed(target, variant.allocations) as live:
            child = _idle(variant.name, live) if watched else None
            before = _seconds(live, variant.kind)
            measured, pairs = _steps(target)
            live.settle()
            estimated = (_seconds(live, variant.kind) - before) / pairs * 1e9 if variant.kind else None
            return _Cost(measured, estimated), child


def _steps(target: Target) -> tuple[float, int]:
    """Nanoseconds of a pair, the median of the steps, and how many pairs there were."""
    said = [target.step() for _ in range(_STEPS)]
    return median(float(one["ns_per_pair"]) for one in said), sum(one["pairs"] for one in said)


def _sampled(seconds: float) -> _Cost:
    """Means of a target that makes some ten thousand pairs a second, in bursts."""
    with (
        Target(build("bench"), str(_BURST), patience=_PATIENCE) as target,
        _followed(target, _SAMPLED.allocations or {}) as live,
    ):
        spent = pairs = 0.0
        before = _seconds(live, _SAMPLED.kind)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            said = target.step()
            pairs += said["pairs"]
            spent += said["pairs"] * said["mean_ns_per_pair"]
            live.hear()
            time.sleep(_PAUSE)
        live.settle()
        return _Cost(spent / pairs, (_seconds(live, _SAMPLED.kind) - before) / pairs * 1e9)


@contextmanager
def _followed(target: Target, allocations: Mapping[str, Any]) -> Iterator[Live]:
    with Live(["allocations"], {"processes": ["bench"]}, {"allocations": allocations}) as live:
        live.targets(1)
        live.settle()
        yield live


def _idle(name: str, live: Live) -> _Child:
    began, before = time.monotonic(), cpu(live.pid)
    time.sleep(_IDLE)
    percent = (cpu(live.pid) - before) / (time.monotonic() - began) * 100
    return _Child(name, *memory(live.pid), percent)


def _seconds(live: Live, kind: str) -> float:
    return live.value(metrics.COST_SECONDS.name, "allocations", kind) or 0.0


def _memleak() -> float:
    """Nanoseconds of a pair. Raises peers.Missing."""
    tool = peers.memleak()
    with Target(build("bench"), str(_PAIRS), patience=_PATIENCE) as target:
        # It takes a tracefs, which is not mounted everywhere.
        script = 'mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"'
        shell = ("unshare", "--mount", "sh", "-c", script, "sh")
        process = subprocess.Popen(
            [*shell, _PYTHON, HERE / "drive_memleak.py", tool, "-p", str(target.pid), "1"],
            env={**os.environ, "BCC_KERNEL_SOURCE": str(HEADERS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            # It says this every second, from when it is attached.
            if not any("outstanding" in line for line in process.stdout):
                raise peers.Missing(f"{tool} has ended at once")
            return _steps(target)[0]
        finally:
            end(process)
