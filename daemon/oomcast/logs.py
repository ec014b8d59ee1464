"""The log on standard error: one line for each record, whatever text gets into it.

logfmt: ts=2026-01-02T03:04:05.678Z level=info logger=oomcast.cgroup msg="…" and the `extra` fields as key=value.
"""

import json
import logging
import math
import re
import threading
import traceback
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO

from oomcast.clock import Clock, SystemClock

Format = Literal["logfmt", "json"]

# journald cuts lines at 48 KiB, and what follows a cut would pass for a line of its own.
MAX_LINE = 40_000
MAX_VALUE = 8_000
MAX_TRACE = 16_000

# Libraries that say at info what is ours to say, or log each request.
_QUIET: Mapping[str, int] = {
    "apscheduler": logging.ERROR,
    "asyncio": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "uvicorn": logging.WARNING,
    "uvicorn.access": logging.CRITICAL,
}
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FIELDS = ("ts", "level", "logger", "msg", "exception", "truncated")
_KEY = re.compile(r"[^A-Za-z0-9_.]")
_BARE = re.compile(r"[A-Za-z0-9_.:/@%+,;*?<>()\[\]{}|~^&$#!'-]+\Z")


def configure(level: str, line_format: Format, stream: TextIO) -> "LineHandler":
    """Sends all logging to `stream`, in place of an earlier call's stream. level: as in the settings."""
    handler = LineHandler(stream, line_format)
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, LineHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(max(quiet, root.level))
    logging.captureWarnings(True)
    return handler


class LineHandler(logging.StreamHandler[TextIO]):
    """lost: how many records could not be written; the log cannot complain about itself in the log."""

    def __init__(self, stream: TextIO, line_format: Format) -> None:
        super().__init__(stream)
        self.lost = 0
        self.setFormatter(JsonLine() if line_format == "json" else Logfmt())

    def handleError(self, record: logging.LogRecord) -> None:
        self.lost += 1


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {}
        size = 0
        for key, value in _fields(record):
            text = quote(value) if isinstance(value, str) else json.dumps(value)
            size += len(key) + len(text.encode()) + 6
            if size > MAX_LINE:
                line["truncated"] = True
                break
            line[key] = value
        return _printable(json.dumps(line, ensure_ascii=False))


class Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        parts: list[str] = []
        size = 0
        for key, value in _fields(record):
            text = value if isinstance(value, str) else json.dumps(value)
            part = f"{key}={text if _BARE.match(text) else quote(text)}"
            size += len(part.encode()) + 1
            if size > MAX_LINE:
                parts.append("truncated=true")
                break
            parts.append(part)
        return " ".join(parts)


def quote(text: str) -> str:
    """The text in double quotes with everything escaped that does not print: no value can begin another line."""
    return _printable(json.dumps(text, ensure_ascii=False))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, str | int | float | bool | None]]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    yield "ts", moment.replace("+00:00", "Z")
    yield "level", record.levelname.lower()
    yield "logger", _cut(record.name, MAX_VALUE)
    yield "msg", _cut(_message(record), MAX_VALUE)
    # Before the fields of the caller: when a line gets too long, the cause is what must not be lost.
    if trace := _trace(record):
        yield "exception", trace
    for key, value in vars(record).items():
        if key not in _STANDARD:
            name = _KEY.sub("_", key[:100]) or "_"
            yield f"{name}_" if name in _FIELDS else name, _plain(value)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - whatever an argument's __str__ raises, the rest must be logged
        return f"{_plain(record.msg)} (arguments do not format: {type(error).__name__})"


def _plain(value: object) -> str | int | float | bool | None:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 64 else hex(value)[:MAX_VALUE]
    try:
        return _cut(str(value), MAX_VALUE)
    except Exception as error:  # noqa: BLE001 - as above
        return f"({type(value).__name__} does not format: {type(error).__name__})"


def _trace(record: logging.LogRecord) -> str:
    text = record.exc_text or ""
    if not text and record.exc_info and record.exc_info[0]:
        text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    if record.stack_info:
        text = f"{text}\n{record.stack_info}".lstrip()
    # The end names the error and the line that raised it.
    return _cut(text[::-1], MAX_TRACE)[::-1]


def _cut(text: str, limit: int) -> str:
    """At most `limit` bytes once it is quoted."""
    cut = text[:limit]
    while len(quote(cut).encode()) > limit:
        cut = cut[: len(cut) * 3 // 4]
    return cut if len(cut) == len(text) else cut + "…"


class OnChange:
    """Logs a state when it differs from the last one of its key, so that a lasting failure is one line.

    Thread-safe. At most `max_keys` keys are remembered. When all of them are in use, further keys are not logged
    (names that others choose would flood the log); a key that was not reported for `idle` seconds gives up its place.
    """

    def __init__(
        self, log: logging.Logger, *, max_keys: int = 1000, idle: float = 3600, clock: Clock | None = None
    ) -> None:
        self._log = log
        self._max_keys = max_keys
        self._idle = idle
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._last: OrderedDict[Hashable, tuple[Hashable, float]] = OrderedDict()
        self._full = False

    def report(
        self, key: Hashable, state: Hashable, level: int, message: str, extra: Mapping[str, object] | None = None
    ) -> bool:
        """Logs `message` (no % formatting) if `state` is new for `key`; says whether it did."""
        now = self._clock.monotonic()
        with self._lock:
            known = self._last.pop(key, None)
            if known is None and not self._has_room(now):
                first, self._full = not self._full, True
                told = False
            else:
                self._last[key] = (state, now)
                first, told = False, known is None or known[0] != state
        if first:
            self._log.warning("changes of more than %d things are not logged", self._max_keys)
        if told:
            self._log.log(level, "%s", message, extra=extra)
        return told

    def forget(self, key: Hashable) -> None:
        """The thing went away: its next state is new."""
        with self._lock:
            self._last.pop(key, None)

    def _has_room(self, now: float) -> bool:
        if len(self._last) >= self._max_keys:
            _, seen = next(iter(self._last.values()))
            if now - seen < self._idle:
                return False
            self._last.popitem(last=False)
        self._full = False
        return True
