"""What the child says to the daemon: a JSON array a line, the first item is the kind. The daemon tells the child its
settings, as one line of JSON, and ends it by closing the pipe."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

from oomcast.contract import Event

LONGEST = 8 << 20
"""Bytes of a line; a longer one is no message."""


@dataclass(frozen=True, slots=True)
class Row:
    """The value of one series. metric: a name of metrics.py. labels: the values, in the metric's order."""

    metric: str
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Report:
    """All series as they stand, counted since the child began."""

    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Log:
    """Something for the daemon's log. level: of logging."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of one probe in a check. said: for people."""

    probe: str
    fine: bool
    said: str


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing can be had on this machine; the child ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """What it was started for does not work now; the child ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stack:
    """Memory that is outstanding of one stack. bytes, blocks: of it. frames: from the allocator's caller outwards."""

    bytes: int
    blocks: int
    frames: Sequence[str]


Message = Report | Event | Log | Checked | Absent | Failed | Stack


@dataclass(frozen=True, slots=True)
class Wanted:
    """Stacks of one process, once. seconds: how long it is followed. most: of them."""

    pid: int
    kind: str
    seconds: float
    most: int


@dataclass(frozen=True, slots=True)
class Order:
    """What the child is to do. settings: EbpfSettings as JSON. serving: patterns of engines. check: try every probe and
    end. proc, pods: the machine's folders. stacks: tell these and end."""

    settings: Mapping[str, object] = field(default_factory=dict)
    serving: Sequence[str] = ()
    check: bool = False
    proc: str = "/proc"
    pods: str = "/var/log/pods"
    stacks: Wanted | None = None

    def encode(self) -> bytes:
        stacks = astuple(self.stacks) if self.stacks else None
        told = [self.settings, list(self.serving), self.check, self.proc, self.pods, stacks]
        return json.dumps(told).encode() + b"\n"


def decode_order(line: bytes) -> Order:
    """Raises ValueError on anything but an order."""
    settings, serving, check, proc, pods, stacks = json.loads(line)
    return Order(settings, tuple(serving), check, proc, pods, Wanted(*stacks) if stacks else None)


def encode(message: Message) -> bytes:
    match message:
        case Report(rows):
            said: list[object] = ["report", [[row.metric, row.labels, row.value] for row in rows]]
        case Event():
            told = message
            said = ["event", told.kind, told.time, told.monotonic, told.summary, dict(told.fields)]
        case Log(level, text):
            said = ["log", level, text]
        case Checked(probe, fine, text):
            said = ["checked", probe, fine, text]
        case Absent(reason):
            said = ["absent", reason]
        case Failed(reason):
            said = ["failed", reason]
        case Stack(size, blocks, frames):
            said = ["stack", size, blocks, list(frames)]
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Raises ValueError on anything but a message."""
    try:
        kind, *rest = json.loads(line)
        match kind, rest:
            case "report", [rows]:
                return Report([Row(str(metric), tuple(map(str, labels)), value) for metric, labels, value in rows])
            case "event", [str(name), float(time), float(monotonic), str(summary), dict(fields)] if _are_plain(fields):
                return Event(name, time, monotonic, summary, fields)
            case "log", [int(level), str(text)]:
                return Log(level, text)
            case "checked", [str(probe), bool(fine), str(text)]:
                return Checked(probe, fine, text)
            case "absent", [str(reason)]:
                return Absent(reason)
            case "failed", [str(reason)]:
                return Failed(reason)
            case "stack", [int(size), int(blocks), list(frames)]:
                return Stack(size, blocks, tuple(map(str, frames)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{error}: {line[:100]!r}") from error
    raise ValueError(f"no message: {line[:100]!r}")


def _are_plain(fields: Mapping[str, object]) -> bool:
    return all(isinstance(value, str | int | float) for value in fields.values())
