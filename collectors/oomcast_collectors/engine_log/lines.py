"""Bytes as they come -> whole lines of bounded length, and what container runtimes wrap around them."""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

MAX_LINE = 16_384 + 256
"""Bytes: the longest piece that container runtimes write, with what they put before it."""

_CRI = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP])(?::\S{0,64})? ")
_CRI_PARTIAL = (b" stdout P", b" stderr P")
_DOCKER = b'{"log":"'
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")


@dataclass(slots=True)
class Tally:
    """What was read of one engine's logs. cut: lines whose end was skipped; skipped: bytes that were not looked at."""

    lines: int = 0
    cut: int = 0
    skipped: int = 0
    errors: int = 0
    events: dict[str, int] = field(default_factory=dict)


class Line(NamedTuple):
    """time: UTC seconds that the line was stamped with, or None."""

    text: str
    time: float | None


class Lines:
    """A stream cut into lines. longest: bytes of a line that are kept; the rest of it is counted and forgotten."""

    def __init__(self, tally: Tally, longest: int = MAX_LINE) -> None:
        self._tally = tally
        self._longest = longest
        self._rest = b""
        self._skipping = False

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are complete now, each with its newline."""
        tally = self._tally
        if self._skipping:
            end = chunk.find(b"\n")
            tally.skipped += len(chunk) if end < 0 else end
            if end < 0:
                return b""
            chunk = chunk[end:]
            self._skipping = False
        data = self._rest + chunk
        end = data.rfind(b"\n") + 1
        block, self._rest = data[:end], data[end:]
        if len(self._rest) > self._longest:
            self._rest = self._cut(self._rest)
            self._skipping = True
        lines = block.split(b"\n")
        tally.lines += len(lines) - 1
        if max(map(len, lines)) > self._longest:
            block = b"\n".join(map(self._cut, lines))
        return block

    def lost(self) -> None:
        """The next bytes do not follow those before: they are the end of some line."""
        self._rest = b""
        self._skipping = True

    def finish(self) -> bytes:
        """The last line, which has no newline, as if it had one."""
        rest, self._rest = self._rest, b""
        self._skipping = False
        self._tally.lines += bool(rest)
        return rest + b"\n" if rest else b""

    def _cut(self, line: bytes) -> bytes:
        if len(line) > self._longest:
            self._tally.skipped += len(line) - self._longest
            self._tally.cut += 1
        return line[: self._longest]


class Joiner:
    """Puts lines together that a container runtime has split (CRI's P lines), for each stream of its own."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._parts: dict[bytes, bytes] = {}

    def join(self, block: bytes) -> bytes:
        """The same lines, with those that were split as one line with the stamp of their last part."""
        if not self._parts and not any(mark in block for mark in _CRI_PARTIAL):
            return block
        return b"".join(filter(None, map(self._one, block.splitlines(keepends=True))))

    def _one(self, line: bytes) -> bytes:
        header = _CRI.match(line)
        if header is None:
            return line
        stream, text = header[2], line[header.end() :]
        whole = self._parts.pop(stream, b"") + text
        if header[3] == b"F":
            return header[0] + whole
        kept = whole.rstrip(b"\n")[:MAX_LINE]
        self._tally.skipped += len(whole.rstrip(b"\n")) - len(kept)
        self._parts[stream] = kept
        return b""


def unwrap(raw: bytes) -> Line:
    """The engine's own text of a line, without its newline; text that is not UTF-8 has replacement characters."""
    if raw.startswith(_DOCKER):
        return _docker(raw.decode("utf-8", "replace"))
    header = _CRI.match(raw)
    if header is None:
        return Line(raw.decode("utf-8", "replace"), None)
    return Line(raw[header.end() :].decode("utf-8", "replace"), _stamp(header[1].decode()))


def _docker(text: str) -> Line:
    try:
        record = json.loads(text)
        return Line(str(record["log"]).removesuffix("\n"), _stamp(str(record.get("time", ""))))
    except (ValueError, KeyError, RecursionError):
        pass
    # Cut in the middle: what is there of the text is still of use.
    value = _CUT_ESCAPE.sub("", text.removeprefix(_DOCKER.decode()))
    try:
        return Line(str(json.loads(f'"{value}"')), None)
    except ValueError:
        return Line(text, None)


def _stamp(text: str) -> float | None:
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    return stamp.timestamp() if stamp.tzinfo else None
