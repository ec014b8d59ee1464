"""Pages of many nodes, out of several that one real daemon gave: each node goes on as the recorded one did.

A node's next page is its last one and what changed between two recorded ones, drawn anew each time: counters rise by
what they rose by, gauges are what they were. So as many series change as on a real node, and counters of one
histogram fit together. Ids of GPUs, pods and containers are the node's own.
"""

import itertools
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

MARK = "feed0000"
"""In each id that is a node's own: of GPUs, pods and containers. Each node that is played has its number there."""

_LINE = re.compile(r'^([a-zA-Z_:][\w:]*(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?) (\S+)(.*)$')
_RISING = frozenset({"counter", "histogram"})
_TIMES = ("_timestamp_seconds", "_start_time_seconds")
_OLD = 7200.0
"""Seconds by which what began is older than it was: nothing is loading, nothing has just been restarted."""

_SOON, _LEAST, _NEARER = 590.0, 130.0, 15.0
"""Seconds that memory lasts on a node in trouble: at first, at last, and less with each scrape."""

_FORECAST = "oomcast_time_to_exhaustion_seconds"

_CALM = {_FORECAST: "+Inf", "oomcast_kv_cache_largest_request_tokens": "1e+06"}
"""What this machine's memory does, and the engine of the recorded page, is no trouble of theirs."""

_EVERY, _SILENT_EVERY = 50, 100


class Body(NamedTuple):
    """A page of the daemon. at: UTC seconds."""

    at: float
    text: str


def trouble(node: int) -> str:
    """ "gpu" and "cgroup": that memory of an engine runs out; "silent": it does not answer; else ""."""
    if node % _SILENT_EVERY == _SILENT_EVERY - 1:
        return "silent"
    return {7: "gpu", 32: "cgroup"}.get(node % _EVERY, "")


def read(directory: Path) -> list[Body]:
    """What fleet_record has written there."""
    recorded = json.loads((directory / "recorded.json").read_text())
    return [Body(at, (directory / name).read_text()) for at, name in recorded["pages"]]


class Script:
    """What nodes are played by. Raises ValueError of fewer than two bodies, or of none that go on from the first.

    heads: all text but the values, one more than there are values; series: the text of each, name and labels.
    """

    def __init__(self, bodies: Sequence[Body]) -> None:
        if len(bodies) < 2:
            raise ValueError("it takes two pages to see what changes")
        last = bodies[-1]
        every = [(body.at, _values(body.text)) for body in bodies]
        there = set.intersection(*(set(values) for _, values in every))
        self.left_out = len(every[-1][1]) - len(there)
        self.heads, self.series, self.kinds = _split(last.text, there)
        self.first = [every[-1][1][name] for name in self.series]
        self.lags: dict[int, float] = {}
        self.rises: list[list[tuple[int, float]]] = [[] for _ in bodies[1:]]
        self.moves: list[list[tuple[int, bytes]]] = [[] for _ in bodies[1:]]
        for i, name in enumerate(self.series):
            self._learn(i, [(at, values[name]) for at, values in every])

    def _learn(self, i: int, seen: Sequence[tuple[float, str]]) -> None:
        texts = [text for _, text in seen]
        numbers = [float(text) for text in texts]
        if (calm := _CALM.get(_bare(self.series[i]))) is not None:
            self.first[i] = calm
        elif _bare(self.series[i]).endswith(_TIMES):
            if len(set(texts)) > 1:
                self.lags[i] = seen[-1][0] - numbers[-1]
            else:
                self.first[i] = repr(numbers[-1] - _OLD)
        elif len(set(texts)) == 1:
            return
        elif self.kinds[i] in _RISING:
            for rises, (one, next_one) in zip(self.rises, itertools.pairwise(numbers), strict=True):
                if next_one > one:
                    rises.append((i, next_one - one))
        else:
            for moves, text in zip(self.moves, texts[1:], strict=True):
                moves.append((i, text.encode()))

    def pick(self, pattern: str) -> list[int]:
        """The places of the series that match from their beginning."""
        return [i for i, name in enumerate(self.series) if re.match(pattern, name)]

    @property
    def changing(self) -> float:
        """The share of series that a scrape finds changed, if the last one was the one before, in the mean."""
        steps = [len(r) + len(self.lags) for r in self.rises]
        gauges = [len({i for i, t in a} - {i for (i, t), (_, u) in zip(a, b, strict=True) if t == u})
                  for a, b in itertools.pairwise(self.moves)]  # fmt: skip
        mean = sum(steps) / len(steps) + (sum(gauges) / len(gauges) if gauges else 0)
        return mean / len(self.series)


class Player:
    """One node. Not thread-safe. page: the next one, each time."""

    def __init__(self, script: Script, number: int) -> None:
        self.trouble = trouble(number)
        self._script = script
        self._own = f"{number + 1:08x}".encode()
        self._random = random.Random(number)
        self._values = [text.encode() for text in script.first]
        rising = {i for rises in script.rises for i, _ in rises}
        # Two nodes have not seen the same number of anything.
        factor = 1 + self._random.random()
        self._numbers = {i: math.floor(float(script.first[i]) * factor) for i in rising}
        self._lasts = _SOON - _NEARER * self._random.randrange(30)
        self._near = _in_trouble(script, self.trouble)

    def page(self, now: float) -> bytes:
        """now: UTC seconds."""
        script, values = self._script, self._values
        drawn = self._random.randrange(len(script.rises))
        for i, rise in script.rises[drawn]:
            self._numbers[i] += rise  # type: ignore[assignment] # some counters are of seconds
            values[i] = repr(float(self._numbers[i])).encode()
        for i, text in script.moves[drawn]:
            values[i] = text
        for i, lag in script.lags.items():
            values[i] = repr(now - lag).encode()
        if self._near:
            self._lasts = _SOON if self._lasts < _LEAST + _NEARER else self._lasts - _NEARER
            for i in self._near:
                values[i] = repr(self._lasts).encode()
        parts = [b""] * (2 * len(values) + 1)
        parts[::2], parts[1::2] = script.heads, values
        return b"".join(parts).replace(MARK.encode(), self._own)

    def values(self) -> Mapping[str, bytes]:
        """Those of the last page by series."""
        own = self._own.decode()
        return {name.replace(MARK, own): value for name, value in zip(self._script.series, self._values, strict=True)}


def _in_trouble(script: Script, what: str) -> list[int]:
    if what == "gpu":
        return script.pick(rf'{_FORECAST}\{{gpu="[^"]*",resource="gpu_memory"\}}')
    if what != "cgroup":
        return []
    engines = [
        found[1] for name in script.series if (found := re.match(r'oomcast_engine_info\{.*cgroup="(.*?)"', name))
    ]
    return script.pick(rf'{_FORECAST}\{{cgroup="(?:' + "|".join(map(re.escape, engines)) + r')"')


def _values(text: str) -> dict[str, str]:
    return {found[1]: found[2] for line in text.splitlines() if (found := _LINE.match(line))}


def _split(text: str, there: set[str]) -> tuple[list[bytes], list[str], list[str]]:
    """Heads, series and their kinds, without the series that are not in `there`."""
    heads: list[bytes] = []
    series: list[str] = []
    kinds: list[str] = []
    head, kind, family = "", "", ""
    for line in text.splitlines():
        if (found := _LINE.match(line)) is None:
            if line.startswith("# TYPE "):
                family, kind = line.split()[2:4]
            head += line + "\n"
        elif found[1] in there:
            heads.append(f"{head}{found[1]} ".encode())
            series.append(found[1])
            kinds.append("created" if _bare(found[1]) == f"{family}_created" else kind)
            head = f"{found[3]}\n"
    return [*heads, head.encode()], series, kinds


def _bare(series: str) -> str:
    return series.partition("{")[0]
