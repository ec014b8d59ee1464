"""Writes the table and the pictures of docs/lengths.md: what the fit of prompt lengths says of published traces.

Each trace is put into the buckets of a vLLM, as the daemon would see it; what the fit makes of them is set beside the
lengths themselves. The same input gives the same bytes.
"""

import csv
import gzip
import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oomcast_collectors.engine.lognormal import Bin, Fit, fit

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "tests" / "fixtures" / "traces"
PAGE = ROOT / "docs" / "lengths.md"
PICTURES = ROOT / "docs" / "pictures"

BEGIN, END = "<!-- scripts/fit_traces.py -->\n", "<!-- end -->\n"
MARKED = {2048: "2048", 65_536: "64K", 131_072: "128K", 200_000: "200K"}

GIVEN = Fit(mu=5.82, sigma=1.37, longest=math.inf, count=1)
"""What was once said to be typical."""

# Lines of the pictures.
TRUE: dict[str, Any] = {"label": "prompts", "color": "#4878a8", "linewidth": 1.3}
FITTED: dict[str, Any] = {"label": "log-normal, fitted", "color": "#c4521c", "linewidth": 1.5}
TYPICAL: dict[str, Any] = {"label": "log-normal(5.82, 1.37)", "color": "0.55", "linewidth": 1, "linestyle": "--"}


@dataclass(frozen=True)
class Trace:
    """max_model_len: the customary one that the longest request fits in; the traces do not tell."""

    name: str
    title: str
    file: str
    max_model_len: int

    def lengths(self) -> list[int]:
        """Tokens of each prompt, shortest first."""
        with gzip.open(TRACES / self.file, "rt") as lines:
            if self.file.endswith(".csv.gz"):
                return sorted(int(row["ContextTokens"]) for row in csv.DictReader(lines))
            return sorted(json.loads(line)["input_length"] for line in lines)


ALL = (
    Trace("azure", "Azure conversation", "azure-llm-2023-conv.csv.gz", 16_384),
    Trace("mooncake", "Mooncake conversation", "mooncake-conversation-first-half.jsonl.gz", 131_072),
    Trace("synthetic", "Mooncake synthetic", "mooncake-synthetic.jsonl.gz", 262_144),
)


def main() -> int:
    PAGE.write_text(replaced(PAGE.read_text(), section()))
    PICTURES.mkdir(exist_ok=True)
    for trace in ALL:
        draw(trace, PICTURES / f"lengths-{trace.name}.svg")
    return 0


def replaced(page: str, text: str) -> str:
    """The page with the text between the markers. Raises ValueError without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no section between {BEGIN.strip()} and {END.strip()}")
    return before + begin + text + end + after


def section() -> str:
    fits = [(trace, trace.lengths(), fitted(trace)) for trace in ALL]
    about_fits = _table(
        "trace | requests | max_model_len | mu, sigma | exact | distance | exact | of 5.82, 1.37 | tail | holds",
        (_fit_row(*row) for row in fits),
    )
    about_shares = _table(
        "share of prompts above | " + " | ".join(f"{name} true | {name} fitted" for name in MARKED.values()),
        (_share_row(*row) for row in fits),
    )
    return about_fits + about_shares + "\n"


def fitted(trace: Trace) -> Fit:
    """To the trace in the buckets of an engine."""
    return _fit(histogram(trace.lengths(), buckets(trace.max_model_len)), trace.max_model_len)


def buckets(longest: int) -> list[float]:
    """vLLM's upper bounds: 1, 2, 5, 10 .. up to max_model_len, and infinity."""
    series = (float(step * 10**power) for power in range(len(str(longest))) for step in (1, 2, 5))
    return [*(bound for bound in series if bound <= longest), math.inf]


def histogram(lengths: Sequence[int], bounds: Iterable[float]) -> list[Bin]:
    """lengths: shortest first."""
    edges = ((bound, bisect_right(lengths, bound)) for bound in (0.0, *bounds))
    return [Bin(low, high, until - since) for (low, since), (high, until) in pairwise(edges)]


def above(lengths: Sequence[int], tokens: float) -> float:
    """The share of longer ones. lengths: shortest first."""
    return 1 - bisect_right(lengths, tokens) / len(lengths)


def distance(one: Fit, lengths: Sequence[int]) -> float:
    """Kolmogorov and Smirnov's, at each length. lengths: shortest first."""
    return max(abs(one.share_above(at) - above(lengths, at)) for n in set(lengths) for at in (n - 1, n))


def _fit(bins: Sequence[Bin], longest: float) -> Fit:
    found = fit(bins, longest)
    assert found is not None, "a trace has enough requests in enough buckets"
    return found


def _fit_row(trace: Trace, lengths: Sequence[int], by_buckets: Fit) -> Iterator[str]:
    exact = _fit([Bin(n - 1, n, count) for n, count in Counter(lengths).items()], trace.max_model_len)
    yield f"[{trace.title}](pictures/lengths-{trace.name}.svg)"
    yield f"{len(lengths):,}"
    yield f"{trace.max_model_len:,}"
    yield f"{by_buckets.mu:.2f}, {by_buckets.sigma:.2f}"
    yield f"{exact.mu:.2f}, {exact.sigma:.2f}"
    yield f"{by_buckets.distance:.3f}"
    yield f"{distance(by_buckets, lengths):.3f}"
    yield f"{distance(GIVEN, lengths):.3f}"
    yield "infinite" if math.isinf(by_buckets.tail) else f"{by_buckets.tail:.1f}"
    yield "yes" if by_buckets.holds else "no"


def _share_row(trace: Trace, lengths: Sequence[int], by_buckets: Fit) -> Iterator[str]:
    yield trace.title
    for tokens in MARKED:
        yield _percent(above(lengths, tokens))
        yield _percent(by_buckets.share_above(tokens))


def _percent(share: float) -> str:
    if 0 < share < 0.00005:
        return "< 0.01 %"
    return f"{100 * share:.2f} %" if share else "0"


def _table(head: str, rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1), *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(["", *lines, ""])


def draw(trace: Trace, path: Path) -> None:
    style: dict[Any, Any] = {
        "svg.hashsalt": "oomcast",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        density, shares = figure.subplots(1, 2)
        lengths, by_buckets = trace.lengths(), fitted(trace)
        _density(density, lengths, by_buckets)
        _shares(shares, lengths, by_buckets)
        figure.legend(*density.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
        verdict = "holds" if by_buckets.holds else "does not hold"
        figure.suptitle(f"{trace.title}: the log-normal {verdict}", fontsize=10)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _density(axes: Axes, lengths: Sequence[int], by_buckets: Fit) -> None:
    edges = _steps(max(lengths[0] * 0.8, 10.0), lengths[-1] * 1.2, 60)
    axes.stairs([_per_e(above(lengths, a) - above(lengths, b), a, b) for a, b in pairwise(edges)], edges, **TRUE)
    fine = _steps(edges[0], edges[-1], 400)
    for one, line in ((by_buckets, FITTED), (GIVEN, TYPICAL)):
        axes.plot(fine[1:], [_per_e(one.share_between(a, b), a, b) for a, b in pairwise(fine)], **line)
    axes.set(xscale="log", xlabel="tokens of a prompt", ylabel="share of prompts, per factor of e", ylim=(0, None))


def _shares(axes: Axes, lengths: Sequence[int], by_buckets: Fit) -> None:
    least = 0.3 / len(lengths)
    fine = _steps(max(lengths[0] * 0.8, 10.0), 300_000, 400)
    axes.plot(fine, [above(lengths, at) or math.nan for at in fine], drawstyle="steps-post", **TRUE)
    for one, line in ((by_buckets, FITTED), (GIVEN, TYPICAL)):
        axes.plot(fine, [one.share_above(at) or math.nan for at in fine], **line)
    for tokens, name in MARKED.items():
        axes.axvline(tokens, color="0.6", linewidth=0.7, linestyle=":")
        axes.annotate(name, (tokens, 1.5), ha="center", color="0.3", fontsize=7, rotation=90, annotation_clip=False)
    axes.set(xscale="log", yscale="log", ylim=(least, 1.3), xlabel="tokens", ylabel="share of prompts that are longer")


def _per_e(share: float, low: float, high: float) -> float:
    return share / math.log(high / low)


def _steps(first: float, last: float, count: int) -> list[float]:
    """Evenly in the logarithm."""
    return [first * (last / first) ** (n / count) for n in range(count + 1)]


if __name__ == "__main__":
    raise SystemExit(main())
