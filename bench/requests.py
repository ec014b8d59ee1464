"""CPU and losses of the intake of messages about requests, beside a loop that only receives them."""

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from machine import HERE, MB, background, child, cpu, free_port, get, median, memory, table, verdict, wait_for
from oomcast_collectors.all import ALL

RATE = 20_000
"""Messages a second that one core has to take."""

_UNLIMITED = 1_000_000
_LIMIT = 10_000
_SECONDS = 5.0
_REPEATS = 3
_SETTLING = 1.5
_WAITS, _DROPS, _KEEPS = -1, 0, 256
_EVERY = re.compile(r'^oomcast_request_messages_total\{outcome="(\w+)"\} (\S+)$', re.MULTILINE)


class _Sent(NamedTuple):
    """cpu: seconds that the receiver took. rss: bytes, before and after. taken: by outcome."""

    sent: int
    dropped: int
    seconds: float
    cpu: float
    rss: tuple[float, float]
    taken: dict[str, int]

    @property
    def microseconds(self) -> float:
        return self.cpu / self.sent * 1e6


def run(seconds: float = _SECONDS) -> None:
    """Prints the tables. seconds: how long each sender sends."""
    pairs = [(_floor(seconds), _daemon(RATE, _WAITS, seconds)) for _ in range(_REPEATS)]
    floor, ours = (median(one.microseconds for one in side) for side in zip(*pairs, strict=True))
    row = [f"{floor:.1f}", f"{ours:.1f}", f"{ours / floor:.1f}", f"{ours * RATE / 1e4:.0f}", 100]
    columns = ("a loop that receives", "daemon", "ratio", f"% of a core at {RATE:,}/s", "target", "")
    title = f"requests: CPU microseconds a message, medians of {_REPEATS} turns"
    table(title, columns, [[*row, verdict(ours * RATE / 1e4, 100)]])
    steps = (
        ("waits", RATE, _WAITS, _UNLIMITED),
        ("waits, as fast as it can", 0, _WAITS, _UNLIMITED),
        ("does not wait", RATE, _DROPS, _UNLIMITED),
        (f"does not wait, keeps {_KEEPS}", RATE, _KEEPS, _UNLIMITED),
        ("waits, above the limit", RATE, _WAITS, _LIMIT),
    )
    rows = [_row(name, _daemon(rate, keep, seconds, limit), limit) for name, rate, keep, limit in steps]
    length = Path("/proc/sys/net/unix/max_dgram_qlen").read_text().strip()
    names = ("sender", "limit", "sent /s", "dropped by it", "taken", "above the limit", "unaccounted", "RSS grew MB")
    table(f"requests: what becomes of messages, with a queue of {length}", names, rows)


def _row(name: str, one: _Sent, limit: int) -> list[object]:
    rest = one.sent - sum(one.taken.values())
    share = one.dropped / (one.sent + one.dropped)
    taken = (f"{one.taken['accepted']:,}", f"{one.taken['rate_limited']:,}", rest)
    grown = (one.rss[1] - one.rss[0]) / MB
    return [name, f"{limit:,}", f"{one.sent / one.seconds:,.0f}", f"{share:.2%}", *taken, f"{grown:.1f}"]


def _floor(seconds: float) -> _Sent:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/socket"
        with child([sys.executable, HERE / "receive.py", path]) as receiver:
            receiver.answer()
            began = cpu(receiver.pid)
            sent, dropped, spent = _send(path, RATE, _WAITS, seconds)
            return _Sent(sent, dropped, spent, cpu(receiver.pid) - began, (0, 0), {"accepted": int(receiver.ask())})


def _daemon(rate: int, keep: int, seconds: float, limit: int = _UNLIMITED) -> _Sent:
    with tempfile.TemporaryDirectory() as directory, _receiving(f"{directory}/socket", limit) as (pid, port):
        path = f"{directory}/socket"
        _send(path, _LIMIT / 2, _WAITS, 1.0)  # engines, series and buffers are there from here on
        time.sleep(_SETTLING)
        known, rss, began = _taken(port), memory(pid)[0], cpu(pid)
        sent, dropped, spent = _send(path, rate, keep, seconds)
        used = cpu(pid) - began
        time.sleep(_SETTLING)
        taken = {outcome: count - known[outcome] for outcome, count in _taken(port).items()}
        return _Sent(sent, dropped, spent, used, (rss, memory(pid)[0]), taken)


@contextmanager
def _receiving(path: str, limit: int) -> Iterator[tuple[int, int]]:
    """A daemon with no other collector; its process id and port."""
    port = free_port()
    own = {"OOMCAST_COLLECTORS__REQUESTS__SOCKET": path, "OOMCAST_COLLECTORS__REQUESTS__RATE": str(limit)}
    settings = {f"OOMCAST_COLLECTORS__{spec.name.upper()}__ENABLED": "false" for spec in ALL if spec.name != "requests"}
    settings |= {"OOMCAST_HTTP__LISTEN": f"127.0.0.1:{port}", "OOMCAST_LOG__LEVEL": "error"}
    settings["OOMCAST_COLLECTORS__REQUESTS__INTERVAL"] = "1"
    with background([sys.executable, "-m", "oomcast", "run"], {**settings, **own}) as pid:
        wait_for(port, "/-/ready")
        while not Path(path).exists():
            time.sleep(0.05)
        yield pid, port


def _taken(port: int) -> dict[str, int]:
    return {outcome: int(float(count)) for outcome, count in _EVERY.findall(get(port)[1].decode())}


def _send(path: str, rate: float, keep: int, seconds: float) -> tuple[int, int, float]:
    """Sent, dropped, and the seconds that it took."""
    with child([sys.executable, HERE / "send_requests.py", path, str(rate), str(seconds), str(keep)]) as sender:
        sent, dropped, spent = sender.ask().split()
    return int(sent), int(dropped), float(spent)
