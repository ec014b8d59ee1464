"""Reads another program's metrics: exposition text -> the samples of the metrics that are wanted.

The Prometheus text format 0.0.4 and OpenMetrics, of any writer: a line that cannot be read costs that line, and lines
of other metrics next to nothing.
"""

import io
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

MAX_LINE = 64 << 10
MAX_LABELS = 128
_MAX_EXAMPLE = 200
_MAX_KNOWN = 512
_MAX_KNOWN_TEXT = 512
_MAX_KEPT = 2000
_INDENTED_OR_QUOTED = b" \t{"

# Runs of one class of characters never give any back, and of two ways to go on the next character decides: so no line
# takes more than a few passes, whatever is in it.
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_LABEL_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*+"
_LABEL_VALUE = r'"[^"\\]*+(?:\\.[^"\\]*+)*"'
_LABEL = rf"[ \t]*+{_LABEL_NAME}[ \t]*+=[ \t]*+{_LABEL_VALUE}[ \t]*+"
_LABELS = re.compile(rf"[ \t]*+\{{((?:{_LABEL},)*(?:{_LABEL})?[ \t]*+)\}}|(?=[ \t])", re.S)
_PAIR = re.compile(rf"({_LABEL_NAME})[ \t]*+=[ \t]*+({_LABEL_VALUE})", re.S)
_REST = re.compile(
    r"[ \t]*+([0-9.eE+-]++|[+-]?(?i:nan|inf(?:inity)?))"
    r"(?:[ \t]++[0-9.eE+-]++)?"  # a timestamp
    r"(?:[ \t]++\#[ \t]++\{.*+|[ \t\r]*+)\Z",  # an exemplar
    re.S,
)
_ESCAPE = re.compile(r'\\([\\n"])')


class Line(NamedTuple):
    """One sample. labels: of a name that is there twice the first; shared between lines, not to be changed.

    number: the value as it was written, for who must tell 1 from 1.000000.
    """

    name: str
    labels: Mapping[str, str]
    value: float
    number: str


class Known:
    """What was read of one program's pages so far: most of the next one is the same again. For one thread.

    labels: by their text, since few lines of a page have labels of their own. lines: of the last page, as it had them.
    """

    def __init__(self) -> None:
        self.labels: dict[str, Mapping[str, str]] = {}
        self.lines: dict[bytes, Line] = {}


class Page:
    """The lines of a page with a wanted metric, to be gone through once; the counts are whole at the end of that.

    malformed: wanted lines that could not be read, among them one that ends without a newline, whose number may have
    been cut; example: the first of them, cut. dropped: wanted lines above `max_lines`, not looked at. quoted: lines
    that name their metric in quotes, as only names do that are no identifiers.
    """

    def __init__(self, body: bytes, wanted: Collection[str], max_lines: int, known: Known) -> None:
        self.malformed = 0
        self.example = ""
        self.dropped = 0
        self.quoted = 0
        self._body = body
        self._names = {name.encode(): name for name in wanted}
        self._left = max_lines
        self._known = known
        self._kept: dict[bytes, Line] = {}

    def __iter__(self) -> Iterator[Line]:
        # A look at as many characters as the shortest name has passes over most lines.
        shortest = min(map(len, self._names), default=0)
        heads = {name[:shortest] for name in self._names}
        # Not split(): sixteen million empty lines would be a list of them.
        for line in io.BytesIO(self._body):
            if line[:shortest] not in heads:
                if line[0] not in _INDENTED_OR_QUOTED:
                    continue
                line = line.lstrip(b" \t")
                if line[:shortest] not in heads:
                    self.quoted += line.startswith(b"{")
                    continue
            sample = self._sample(line)
            if sample is not None:
                yield sample
        self._known.lines = self._kept

    def _sample(self, line: bytes) -> Line | None:
        match = _NAME.match(line)
        name = self._names.get(match[0]) if match else None
        if match is None or name is None:
            return None
        if self._left <= 0:
            self.dropped += 1
            return None
        self._left -= 1
        sample = self._known.lines.get(line)
        try:
            if sample is None:
                labels, number = self._parse(line, match.end())
                sample = Line(name, labels, float(number), number)
        except ValueError:
            self.malformed += 1
            self.example = self.example or line[:_MAX_EXAMPLE].decode("utf-8", "backslashreplace").strip()
            return None
        if len(self._kept) < _MAX_KEPT and len(line) <= _MAX_KNOWN_TEXT:
            self._kept[line] = sample
        return sample

    def _parse(self, line: bytes, at: int) -> tuple[Mapping[str, str], str]:
        """The labels, and the number as text, of what follows the name. Raises ValueError."""
        if len(line) > MAX_LINE or not line.endswith(b"\n"):
            raise ValueError
        text = line[at:-1].decode("utf-8", "surrogateescape")
        block = _LABELS.match(text)
        rest = _REST.match(text, block.end()) if block else None
        if block is None or rest is None:
            raise ValueError
        return self._labels(block[1] or ""), rest[1]

    def _labels(self, text: str) -> Mapping[str, str]:
        """The labels of what matches as a list of them. Raises ValueError."""
        known = self._known.labels
        labels = known.get(text)
        if labels is None:
            labels = _parse_labels(text)
            if len(text) <= _MAX_KNOWN_TEXT:
                if len(known) >= _MAX_KNOWN:
                    known.clear()
                known[text] = labels
        return labels


def read(body: bytes, wanted: Collection[str], *, max_lines: int = 50_000, known: Known | None = None) -> Page:
    """The samples of `wanted`, names as they are in the text: those of histograms end in _bucket, _count and _sum.

    known: of this program's pages before, if they are read again and again for the same `wanted`.
    """
    return Page(body, wanted, max_lines, known or Known())


def _parse_labels(text: str) -> Mapping[str, str]:
    """Raises ValueError."""
    pairs = _PAIR.findall(text)
    if len(pairs) > MAX_LABELS:
        raise ValueError
    labels = {name: value[1:-1] for name, value in pairs}
    if len(labels) < len(pairs):
        labels |= {name: value[1:-1] for name, value in reversed(pairs)}
    if "\\" in text or not text.isascii():
        return {name: _unescape(value) for name, value in labels.items()}
    return labels


def _unescape(text: str) -> str:
    text = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], text)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
