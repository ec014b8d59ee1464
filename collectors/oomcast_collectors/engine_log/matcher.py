"""Lines against rules: a cheap look for literals in whole blocks, and everything else only where one was found."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oomcast_collectors.engine_log.numbers import parse_number
from oomcast_collectors.engine_log.rules import REQUEST_MARKS, Rule

BEFORE, AFTER = 256, 1280
"""Characters around a literal that regexes see."""
WINDOW = BEFORE + AFTER
_PIECE = 12  # characters: shorter ones would be fewer, but in too many lines
_SLOW = 0.05  # seconds of CPU time over one line


class Hit(NamedTuple):
    """A line that is one of a rule's. literal: the rule's own text that was found."""

    rule: Rule
    literal: str
    numbers: Mapping[str, int | float]


@dataclass(slots=True)
class _Compiled:
    rule: Rule
    regex: re.Pattern[str] | None = field(init=False)
    numbers: Mapping[str, re.Pattern[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.regex = re.compile(self.rule.regex) if self.rule.regex else None
        self.numbers = {name: re.compile(pattern) for name, pattern in self.rule.numbers.items()}

    def hit(self, text: str, literals: Sequence[str]) -> Hit | None:
        for literal in literals:
            at = text.find(literal)
            window = text[max(0, at - BEFORE) : at + AFTER]
            if self.regex is None or self.regex.search(window):
                return Hit(self.rule, literal, self._numbers(window))
        return None

    def _numbers(self, window: str) -> Mapping[str, int | float]:
        found = {}
        for name, pattern in self.numbers.items():
            match = pattern.search(window)
            texts = [group for group in match.groups() if group] if match else []
            if texts and (number := parse_number(texts[0])) is not None:
                found[name] = number
        return found


class Matcher:
    """For one thread. slow: is told of a rule that took too long over a line, and is not used again.

    limit: CPU seconds that a rule may take over one line; clock: what measures them.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        slow: Callable[[Rule, float], None],
        limit: float = _SLOW,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._pairs = [(literal, compiled) for compiled in map(_Compiled, rules) for literal in compiled.rule.contains]
        self._slow = slow
        self._limit = limit
        self._clock = clock
        self._needles = _needles(rules)

    def candidates(self, block: bytes) -> Iterator[tuple[int, int]]:
        """Begin and end of each line of `block` that a rule may take, in order. Every line ends with a newline."""
        starts = set()
        # One search for each literal: long ones skip most of the text, and together they beat one alternation by far.
        for needle in self._needles:
            at = block.find(needle)
            while at >= 0:
                starts.add(block.rfind(b"\n", 0, at) + 1)
                end = block.find(b"\n", at)
                at = block.find(needle, end) if end >= 0 else -1
        for start in sorted(starts):
            end = block.find(b"\n", start)
            yield start, end if end >= 0 else len(block)

    def match(self, text: str) -> list[Hit]:
        """What the line is, by every rule that takes it."""
        hits = []
        for compiled, literals in self._found(text):
            began = self._clock()
            hit = compiled.hit(text, literals)
            took = self._clock() - began
            if took > self._limit:
                self._pairs = [pair for pair in self._pairs if pair[1] is not compiled]
                self._slow(compiled.rule, took)
            if hit is not None:
                hits.append(hit)
        return hits

    def _found(self, text: str) -> list[tuple[_Compiled, list[str]]]:
        """The rules of which literals are in the line, with these."""
        found: list[tuple[_Compiled, list[str]]] = []
        for literal, compiled in self._pairs:
            if literal in text:
                if found and found[-1][0] is compiled:
                    found[-1][1].append(literal)
                else:
                    found.append((compiled, [literal]))
        if found and any(mark in text for mark in REQUEST_MARKS):
            return []
        return found


def _needles(rules: Sequence[Rule]) -> tuple[bytes, ...]:
    """What to look for in a block: pieces of literals, as few as will do for all of them."""
    left = {text for rule in rules for literal in rule.contains for text in (literal, *_escaped(literal))}
    chosen = []
    while left:
        counts = Counter(piece for text in left for piece in _pieces(text))
        # The longest of equals, then the first: the choice must not depend on the order of a set.
        best = min(counts, key=lambda piece: (-counts[piece], -len(piece), piece))
        chosen.append(best.encode())
        left = {text for text in left if best not in text}
    return tuple(chosen)


def _pieces(text: str) -> set[str]:
    return {text[at : at + _PIECE] for at in range(max(1, len(text) - _PIECE + 1))}


def _escaped(literal: str) -> tuple[str, str]:
    """As journald and as Docker write it; the latter escapes what HTML would mind."""
    text = json.dumps(literal, ensure_ascii=False)[1:-1]
    return text, text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
