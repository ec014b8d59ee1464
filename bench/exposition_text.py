"""CPU of reading an engine's metrics, beside prometheus_client's parser on the same pages."""

import time
from collections.abc import Callable, Collection, Mapping
from functools import partial

from prometheus_client.parser import text_string_to_metric_families

from machine import MB, median, table, verdict
from oomcast_collectors.exposition_text import read

TARGET = 40.0
"""CPU ms for the large page where 400 of its lines are wanted."""

_GAUGES = [f"vllm:gauge_{n}" for n in range(20)]
_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_PAGES = ((1, 18), (20, 58))
"""Models, and histograms of each; every model has all gauges. They make 50 KB and 3 MB."""


def run(repeats: int = 30) -> None:
    """Prints the table. Each page is read in turn by all."""
    rows: list[list[object]] = []
    largest = 0.0
    for models, histograms in _PAGES:
        body, everything = _page(models, histograms)
        measures: Mapping[str, Callable[[], int]] = {
            "gauges": partial(_read, body, _GAUGES),
            "all": partial(_read, body, everything),
            "peer": partial(_peer, body),
        }
        counts = {name: once() for name, once in measures.items()}
        taken: dict[str, list[float]] = {name: [] for name in measures}
        for _ in range(max(repeats // 3, 3)):
            for name, once in measures.items():
                began = time.process_time()
                once()
                taken[name].append((time.process_time() - began) * 1e3)
        few, every, peer = (median(values) for values in taken.values())
        row = [f"{len(body) / MB:.2f}", f"{counts['all']:,}", f"{counts['gauges']:,}", f"{few:.2f}", f"{every:.2f}"]
        rows.append([*row, f"{peer:.1f}", f"1/{peer / few:.0f}", f"1/{peer / every:.1f}"])
        largest = few
    columns = ("MB", "samples", "wanted", "ms", "ms, all wanted", "prometheus_client", "ratio", "ratio, all wanted")
    table("exposition text: CPU ms of reading a page, medians", columns, rows)
    target = ("3 MB, 400 lines wanted", f"{largest:.1f}", TARGET, verdict(largest, TARGET))
    table("exposition text: target", ("page", "ms here", "target", ""), [target])


def _page(models: int, histograms: int) -> tuple[bytes, set[str]]:
    """A page, and the names of its metrics."""
    lines = []
    for metric in [*_GAUGES, *(f"vllm:histogram_{n}_seconds" for n in range(histograms))]:
        kind = "gauge" if metric in _GAUGES else "histogram"
        lines += [f"# HELP {metric} What an engine says of it.", f"# TYPE {metric} {kind}"]
        for model in range(models):
            labels = f'engine="0",model_name="meta-llama/Llama-3.1-70B-Instruct-{model}"'
            if kind == "gauge":
                lines.append(f"{metric}{{{labels}}} {model}.0")
            else:
                lines += [f'{metric}_bucket{{{labels},le="{bound}"}} {model * 1000}.0' for bound in (*_BOUNDS, "+Inf")]
                lines += [f"{metric}_{part}{{{labels}}} {model * 1000}.0" for part in ("count", "sum")]
    names = {line.partition("{")[0] for line in lines if not line.startswith("#")}
    return "".join(f"{line}\n" for line in lines).encode(), names


def _read(body: bytes, wanted: Collection[str]) -> int:
    return sum(1 for _ in read(body, wanted))


def _peer(body: bytes) -> int:
    return sum(len(family.samples) for family in text_string_to_metric_families(body.decode()))
