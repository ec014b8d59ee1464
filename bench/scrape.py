"""CPU of one scrape through the daemon's HTTP path, beside prometheus_client over the same store and process."""

import http.client
import sys
import time
from collections import defaultdict
from collections.abc import Mapping

from machine import HERE, MB, Child, child, cpu, median, table, verdict

SIZES = (1000, 5000, 20_000)
TARGETS = {"text": 20.0, "gzip": 40.0, "repeated": 3.0}
"""CPU ms at 20,000 series on a quiet machine, on which prometheus_client takes 100 to 110."""

_PEER_QUIET = 105.0
_FORMS: Mapping[str, Mapping[str, str]] = {
    "text": {"Accept-Encoding": "identity"},
    "gzip": {"Accept-Encoding": "gzip"},
}
_SETTLED = 0.004
_WARM = 2


def run(repeats: int = 30) -> None:
    """Prints the table."""
    rows: list[list[object]] = []
    largest: Mapping[str, list[float]] = {}
    with child([sys.executable, HERE / "serve.py"]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", int(server.answer()), timeout=60)
        for size in SIZES:
            for share in (1.0, 0.1):
                taken = _measure(server, connection, size, share, repeats)
                rows.append(_row(size, share, taken))
                if share == 1.0:
                    largest = taken
        connection.close()
    columns = (
        "series", "new values", "text", "again", "gzip", "again", "prometheus_client", "and its gzip", "ratio text",
        "ratio gzip", "MB",
    )  # fmt: skip
    table(f"scrape: CPU ms of the serving process, medians of {repeats} interleaved scrapes", columns, rows)
    _judge(largest)


def _measure(
    server: Child, connection: http.client.HTTPConnection, size: int, share: float, repeats: int
) -> Mapping[str, list[float]]:
    taken: dict[str, list[float]] = defaultdict(list)
    for i in range(_WARM + repeats):
        for form, headers in _FORMS.items():
            server.ask(f"fill {size} {share}")
            for name in (form, f"{form} again"):
                seconds, length = _scrape(server.pid, connection, headers)
                if i >= _WARM:
                    taken[name].append(seconds * 1e3)
                    taken[f"{form} bytes"] = [length]
        # The peer is dear, and steady: a third of the repeats will do.
        if i >= _WARM and i % 3 == 0:
            plain, _, packed, _ = map(float, server.ask("peer").split())
            taken["peer"].append(plain * 1e3)
            taken["peer gzip"].append(packed * 1e3)
    return taken


def _scrape(pid: int, connection: http.client.HTTPConnection, headers: Mapping[str, str]) -> tuple[float, int]:
    time.sleep(_SETTLED)
    began = cpu(pid)
    connection.request("GET", "/metrics", headers=dict(headers))
    body = connection.getresponse().read()
    time.sleep(_SETTLED)  # what the server does once the answer is out is part of it
    return cpu(pid) - began, len(body)


def _row(size: int, share: float, taken: Mapping[str, list[float]]) -> list[object]:
    m = {name: median(values) for name, values in taken.items()}
    return [
        f"{size:,}", f"{share:.0%}", *(f"{m[name]:.2f}" for name in ("text", "text again", "gzip", "gzip again")),
        f"{m['peer']:.1f}", f"{m['peer gzip']:.1f}", f"1/{m['peer'] / m['text']:.1f}",
        f"1/{m['peer gzip'] / m['gzip']:.1f}", f"{m['text bytes'] / MB:.2f}, {m['gzip bytes'] / MB:.2f} gzip",
    ]  # fmt: skip


def _judge(taken: Mapping[str, list[float]]) -> None:
    """The targets are CPU ms of a quiet machine; here they are held against how fast this one is at the moment."""
    pace = median(taken["peer"]) / _PEER_QUIET
    measured = {
        "text": median(taken["text"]),
        "gzip": median(taken["gzip"]),
        "repeated": max(median(taken["text again"]), median(taken["gzip again"])),
    }
    rows = [
        (name, f"{ms:.1f}", f"{ms / pace:.1f}", TARGETS[name], verdict(ms / pace, TARGETS[name]))
        for name, ms in measured.items()
    ]
    columns = ("scrape of 20,000 series, all new", "ms here", "scaled to a quiet machine", "target", "")
    table(f"scrape: targets, at {pace:.2f} x prometheus_client's time on a quiet machine", columns, rows)
