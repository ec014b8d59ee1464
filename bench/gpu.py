"""The gpu collector beside nvitop-exporter, both on the same eight GPUs of a scripted driver: what each sees of spikes
between two scrapes, and what it costs."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import gpu_node
from gpu_node import Node, Program
from gpu_spikes import INTERVAL, WIDTHS, Score, Spike, plan, score_peaks, score_readings
from machine import MB, get, median, memory, series, table, verdict

_SEED = 1
_SETTLING = 12.0
"""Seconds before anything is measured: imports, first runs, the first look at the processes are over."""

_LEAD = 3.0
_FAST = 1.0
_PAUSE = 0.25
"""Seconds between two scrapes for their latency; with two programs in turn each is scraped twice a second."""

_RATIO = 1.0
_THREADS = 12


class _Programs(NamedTuple):
    """ours: with all collectors. alone: with the gpu collector only. bare: with none. Of the daemon, and the peer."""

    ours: Program
    alone: Program
    bare: Program
    peer: Program


def run(minute: float = 60, scrapes: int = 100) -> None:
    """Prints the tables. minute: seconds of the watch over CPU. Raises peers.Missing."""
    with gpu_node.node() as node, contextlib.ExitStack() as stack:
        programs = _Programs(
            ours=stack.enter_context(node.daemon("oomcast, all collectors")),
            alone=stack.enter_context(node.daemon("oomcast, gpu only", others=False)),
            bare=stack.enter_context(node.daemon("oomcast, no collector", gpu=False, others=False)),
            peer=stack.enter_context(node.peer()),
        )
        time.sleep(_SETTLING)
        _show_spikes(node, programs)
        _show_cpu(programs, minute)
        _show_latency((programs.ours, programs.peer), scrapes)
        _show_memory(programs)


def _show_spikes(node: Node, programs: _Programs) -> None:
    spikes = plan(node.uuids, _SEED)
    peaks, slow, fast = _watch(node, programs, spikes)
    scores = {
        "oomcast, peak at 15 s scrapes": score_peaks(spikes, peaks),
        "nvitop-exporter at 15 s scrapes": score_readings(spikes, slow),
        "nvitop-exporter at 1 s scrapes": score_readings(spikes, fast),
    }
    columns = ("program", *(f"{width * 1e3:.0f} ms" for width in WIDTHS), "missed", "invented")
    rows = [_spike_row(name, score) for name, score in scores.items()]
    table(f"gpu: of {len(spikes)} spikes, those seen to within 5 % of their height, by width", columns, rows)


def _spike_row(name: str, score: Score) -> list[object]:
    cells = []
    for width in WIDTHS:
        hidden = f" + {score.hidden[width]} behind a higher one" if score.hidden[width] else ""
        cells.append(f"{score.seen[width]}{hidden} of {score.all[width]}")
    return [name, *cells, score.missed, score.invented]


_Rises = Mapping[str, float]


def _watch(
    node: Node, programs: _Programs, spikes: Sequence[Spike]
) -> tuple[list[_Rises], dict[int, list[_Rises]], dict[int, list[_Rises]]]:
    """What was told while the spikes came: the daemon's peak at the end of each interval, and the peer's reading then
    and at each second."""
    base, peak_base = gpu_node.used(programs.peer), gpu_node.peaks(programs.ours)
    began = time.monotonic() + _LEAD
    _script(node, spikes, time.time() + _LEAD)  # noqa: TID251 - the scripted driver goes by the wall clock
    peaks: list[_Rises] = []
    slow: dict[int, list[_Rises]] = {}
    fast: dict[int, list[_Rises]] = {}
    per_interval = round(INTERVAL / _FAST)
    for second in range(1, per_interval * (max(spike.interval for spike in spikes) + 1) + 1):
        time.sleep(max(began + second * _FAST - time.monotonic(), 0))
        interval, rest = divmod(second, per_interval)
        if not rest:
            peaks.append(_above(gpu_node.peaks(programs.ours), peak_base))
        reading = _above(gpu_node.used(programs.peer), base)
        if not rest:
            slow[interval - 1] = [reading]
        fast.setdefault((second - 1) // per_interval, []).append(reading)
    return peaks, slow, fast


def _above(told: Mapping[str, float], base: Mapping[str, float]) -> _Rises:
    return {gpu: value - base[gpu] for gpu, value in told.items()}


def _script(node: Node, spikes: Sequence[Spike], began: float) -> None:
    """began: when the first interval begins, seconds since the epoch."""
    for uuid, gpu in zip(node.uuids, node.driver.gpus, strict=True):
        own = [spike for spike in spikes if spike.gpu == uuid]
        gpu.set(spikeat=[(f"{began + s.begin:.3f}", f"{s.width * 1e3:.0f}", s.height) for s in own])
    node.driver.write()


def _show_cpu(programs: _Programs, minute: float) -> None:
    began = time.monotonic()
    before = [program.used() for program in programs]
    threads = programs.alone.by_thread()
    while (passed := time.monotonic() - began) < minute:
        for program in programs:
            program.scrape()
        time.sleep(min(INTERVAL, minute - passed))
    seconds = time.monotonic() - began
    shares = [(program.used() - start) / seconds * 100 for program, start in zip(programs, before, strict=True)]
    _, alone, bare, peer = shares
    collector = max(alone - bare, 0.0)
    rows = [(p.name, f"{share:.2f}", f"{share / peer:.2f}", "") for p, share in zip(programs, shares, strict=True)]
    judged = verdict(collector / peer, _RATIO)
    rows.append(("gpu collector (gpu only - none)", f"{collector:.2f}", f"{collector / peer:.2f}", judged))
    columns = ("program", "CPU % of a core", "ratio to the peer", f"<= {_RATIO}")
    table(f"gpu: CPU over the same {seconds:.0f} s, scraped every {INTERVAL:.0f} s", columns, rows)
    after = programs.alone.by_thread()
    taken = {name: (used - threads.get(name, 0.0)) / seconds * 100 for name, used in after.items()}
    most = sorted(taken.items(), key=lambda one: -one[1])[:_THREADS]
    table("gpu: threads of oomcast, gpu only", ("thread", "CPU % of a core"), [(n, f"{cpu:.2f}") for n, cpu in most])


def _show_latency(programs: Sequence[Program], scrapes: int) -> None:
    taken: dict[str, list[float]] = {program.name: [] for program in programs}
    due = time.monotonic()
    for _ in range(scrapes):
        for program in programs:
            due += _PAUSE
            time.sleep(max(due - time.monotonic(), 0))
            began = time.perf_counter()
            program.scrape()
            taken[program.name].append((time.perf_counter() - began) * 1e3)
    peer = taken[programs[-1].name]
    rows = []
    for program in programs:
        ms = taken[program.name]
        numbers = [(at(ms), at(ms) / at(peer)) for at in (median, _p99)]
        cells = [text for value, ratio in numbers for text in (f"{value:.1f}", f"{ratio:.2f}")]
        rows.append([program.name, *cells])
    columns = ("program", "p50 ms", "ratio", "p99 ms", "ratio")
    table(f"gpu: latency of {scrapes} scrapes each, in turn, twice a second", columns, rows)


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def _show_memory(programs: _Programs) -> None:
    rows = []
    for program in programs:
        rss, pss = memory(program.pid)
        rows.append((program.name, f"{series(get(program.port)[1]):,}", f"{rss / MB:.1f}", f"{pss / MB:.1f}"))
    table("gpu: resident memory after all that", ("program", "series", "RSS MB", "PSS MB"), rows)
