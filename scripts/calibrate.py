"""Writes the tables of docs/slo.md: violations of objectives as predicted and as they came, on published traces.

Each trace is played to the simulator: requests that ended go to the book of the source "requests", pages the way that
the engine collector has for them. Time is virtual; the same input gives the same bytes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import NamedTuple

from oomcast.metric import Sample
from oomcast.slo import LengthClass, Slo
from oomcast_collectors import exposition_text
from oomcast_collectors.engine import kinds
from oomcast_collectors.engine.counters import Counters
from oomcast_collectors.engine.distribution import Distribution
from oomcast_collectors.engine.objectives import Objectives
from oomcast_collectors.slo import metrics
from oomcast_collectors.slo.book import Book
from simulator import Config, Engine, Finished, Request, azure, mooncake

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "tests" / "fixtures" / "traces"
PAGE = ROOT / "docs" / "slo.md"

BEGIN, END = "<!-- scripts/calibrate.py -->\n", "<!-- end -->\n"

SLO = Slo(
    classes=(
        LengthClass(up_to=512, e2e=5),
        LengthClass(up_to=2048, e2e=10),
        LengthClass(up_to=8192, e2e=20),
        LengthClass(up_to=32_768, e2e=30),
        LengthClass(up_to=65_536, e2e=60),
        LengthClass(up_to=131_072, e2e=120),
        LengthClass(),
    )
)
"""All of them are bounds of vLLM's histogram of latencies."""

ENGINE = Config(blocks=4096, block_size=512)
PERIOD = 1.0
"""Virtual seconds between two looks at the page."""

WINDOW = 3600.0
"""Seconds. The counters that are read here do not depend on it."""


_COLUMNS = ("requests", "missed", "predicted", "ratio", "second half")
_HEAD = ["up to", "objective", *(f"{source}{what}" for source in ("", "h: ") for what in _COLUMNS)]


@dataclass(frozen=True)
class Trace:
    """stretch: times the span between two arrivals, so that one engine keeps up."""

    title: str
    file: str
    stretch: float

    def requests(self) -> list[Request]:
        read = azure if self.file.endswith(".csv.gz") else mooncake
        return read(TRACES / self.file)


ALL = (
    Trace("Mooncake conversation", "mooncake-conversation-first-half.jsonl.gz", stretch=12),
    Trace("Azure conversation", "azure-llm-2023-conv.csv.gz", stretch=2),
)


class Count(NamedTuple):
    """Requests, and how many of them violated their objective or were expected to."""

    requests: float = 0.0
    violations: float = 0.0
    predicted: float = 0.0

    @property
    def ratio(self) -> float | None:
        """Observed over predicted violations; None where fewer than one was predicted."""
        return self.violations / self.predicted if self.predicted >= 1 else None


ByClass = Mapping[str, Count]
"""By what up_to says of the class; those that had requests."""


class Seen(NamedTuple):
    """At one moment, since the beginning. truth: nothing is predicted there."""

    truth: ByClass
    requests: ByClass
    histograms: ByClass


class Outcome(NamedTuple):
    """second: what came after half of the requests had ended. score: the mean risk score of the prompts."""

    whole: Seen
    second: Seen
    score: float


def main() -> int:
    outcomes = [(trace, replayed(trace)) for trace in ALL]
    PAGE.write_text(replaced(PAGE.read_text(), section(outcomes)))
    return 0


def replaced(page: str, text: str) -> str:
    """The page with the text between the markers. Raises ValueError without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no section between {BEGIN.strip()} and {END.strip()}")
    return before + begin + text + end + after


def replayed(trace: Trace) -> Outcome:
    requests = trace.requests()
    replay = Replay()
    half = None
    for _ in replay.looks(requests, trace.stretch):
        if half is None and 2 * replay.ended >= len(requests):
            half = replay.seen()
    assert half is not None, "a trace has requests"
    whole = replay.seen()
    score = sum(SLO.risk_score.score(one.prompt_tokens) for one in requests) / len(requests)
    return Outcome(whole, Seen(*map(_minus, whole, half)), score)


class Replay:
    """ended: requests so far."""

    def __init__(self) -> None:
        self.ended = self._told = 0
        self._engine = Engine(ENGINE, self._finished, started=1.0)
        self._truth = [Count() for _ in SLO.classes]
        self._book = Book(SLO, "sim", "requests", WINDOW)
        self._counters = Counters()
        self._objectives = Objectives(SLO, "sim", WINDOW)
        self._known = exposition_text.Known()
        self._due = 0.0

    def looks(self, requests: Iterable[Request], stretch: float) -> Iterator[None]:
        """Plays the trace to its end; yields after each look."""
        for request in requests:
            at = request.arrival * stretch
            while self._due <= at:
                self._look()
                yield
            self._engine.advance(at)
            self._engine.submit(request)
        while self._engine.running or self._engine.waiting:
            self._look()
            yield

    def seen(self) -> Seen:
        at = self._engine.now
        truth = {_name(one): count for one, count in zip(SLO.classes, self._truth, strict=True) if count.requests}
        told = (self._book.samples(at), self._objectives.samples(Distribution(SLO), at))
        return Seen(truth, *map(_by_class, told))

    def _finished(self, finished: Finished) -> None:
        assert finished.status == 200, "none of the prompts is too long, and the queue has no end"
        self.ended += 1
        tokens, e2e = finished.request.prompt_tokens, finished.ended - finished.arrived
        self._book.request(tokens, None, e2e, finished.ended)
        place, limit = next((n, one.e2e) for n, one in enumerate(SLO.classes) if tokens <= (one.up_to or math.inf))
        assert limit is not None, "no prompt is in the last class"
        requests, violations, _ = self._truth[place]
        self._truth[place] = Count(requests + 1, violations + (e2e > limit))

    def _look(self) -> None:
        """As the engine collector's. But for the first look, the page is read only where a request has ended."""
        at, self._due = self._due, self._due + PERIOD
        self._engine.advance(at)
        if at > 0 and self._told == self.ended:
            return
        self._told = self.ended
        page = exposition_text.read(self._engine.page(), kinds.KINDS["vllm"].names, known=self._known)
        reading = kinds.read(["vllm"], page)
        restarted = self._counters.look(reading, at)
        self._objectives.look(self._counters.length_parts, reading, restarted, ENGINE.max_model_len, at)


def section(outcomes: Iterable[tuple[Trace, Outcome]]) -> str:
    return "".join(part(trace, outcome) for trace, outcome in outcomes) + "\n"


def part(trace: Trace, outcome: Outcome) -> str:
    """What is said of one trace."""
    whole = total(outcome.whole.truth)
    missed = f"{100 * whole.violations / whole.requests:.1f} % of {whole.requests:,.0f} requests missed their objective"
    head = f"\n**{trace.title}**: {missed}, the mean score is {outcome.score:.2f}.\n\n"
    rows = "".join(f"| {' | '.join(row)} |\n" for row in _rows(outcome))
    return f"{head}| {' | '.join(_HEAD)} |\n{'|---' * len(_HEAD)}|\n{rows}"


def total(counts: ByClass) -> Count:
    return Count(*map(sum, zip(*counts.values(), strict=True)))


def _rows(outcome: Outcome) -> Iterator[list[str]]:
    limits = {_name(one): f"{one.e2e:g} s" for one in SLO.classes if one.e2e is not None}
    whole, second = (Seen(*map(_with_total, seen)) for seen in (outcome.whole, outcome.second))
    for name in whole.histograms:
        row = [name, limits.get(name, "")]
        for now, late in ((whole.requests, second.requests), (whole.histograms, second.histograms)):
            count = now.get(name, Count())
            row += [f"{number:,.0f}" for number in count]
            row += [_ratio(count), _ratio(late.get(name, Count()))]
        yield row


def _by_class(samples: Iterable[Sample]) -> ByClass:
    """The counters of the classes that had requests; no objective is set but e2e."""
    found: dict[str, dict[str, float]] = {}
    wanted = {metrics.REQUESTS: "requests", metrics.VIOLATIONS: "violations", metrics.PREDICTED: "predicted"}
    for series, value, *_ in samples:
        if series.metric in wanted:
            labels = dict(series.labels)
            assert isinstance(value, int | float)
            found.setdefault(labels["up_to"], {})[wanted[series.metric]] = value
    return {name: Count(**values) for name, values in found.items() if values["requests"] > 0}


def _name(one: LengthClass) -> str:
    return "+Inf" if one.up_to is None else str(one.up_to)


def _minus(now: ByClass, then: ByClass) -> ByClass:
    return {name: Count(*map(sub, count, then.get(name, Count()))) for name, count in now.items()}


def _with_total(counts: ByClass) -> ByClass:
    return {**counts, "all": total(counts)}


def _ratio(count: Count) -> str:
    return "" if count.ratio is None else f"{count.ratio:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
