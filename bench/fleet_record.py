"""What a node tells Prometheus: counted, and recorded for others to play."""

import http.client
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleet_node import Node, Shape, node
from machine import series

_ACCEPT = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
"""Prometheus asks for OpenMetrics first."""

_STEADY, _PATIENCE = 15.0, 90.0
_FAMILY = re.compile(r"^([a-zA-Z_:][\w:]*)", re.MULTILINE)
_CREATED = re.compile(r"^\w+_created[ {]", re.MULTILINE)


class Told(NamedTuple):
    """One page. created: series that only say when a counter began. families: series by name."""

    shape: Shape
    series: int
    created: int
    text: int
    gzip: int
    families: Mapping[str, int]


def count(shape: Shape) -> Told:
    """Raises peers.Missing, Unusable."""
    with node(shape) as one:
        _, body = _steady(one)
    text = body.decode()
    families = Counter(found for found in _FAMILY.findall(text))
    created = len(_CREATED.findall(text))
    return Told(shape, series(body), created, len(body), len(zlib.compress(body, 1)), families)


def record(shape: Shape, directory: Path, pages: int, interval: float) -> int:
    """Writes pages that are `interval` seconds apart, and recorded.json about them; the series of the last one.

    Raises peers.Missing, Unusable.
    """
    written = []
    with node(shape) as one:
        kind, body = _steady(one)
        for number in range(pages):
            name = f"page-{number}.txt"
            (directory / name).write_bytes(body)
            written.append((time.time(), name))  # noqa: TID251 - what pages say is UTC
            if number < pages - 1:
                time.sleep(interval)
                kind, body = _fetch(one)
    (directory / "recorded.json").write_text(json.dumps({"kind": kind, "pages": written}))
    return series(body)


def _steady(one: Node) -> tuple[str, bytes]:
    """The page once no series has come for a while."""
    until = time.monotonic() + _PATIENCE
    known, since = 0, time.monotonic()
    while True:
        kind, body = _fetch(one)
        now = time.monotonic()
        if series(body) != known:
            known, since = series(body), now
        if now - since >= _STEADY or now > until:
            return kind, body
        time.sleep(1)


def _fetch(one: Node) -> tuple[str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=60)
    try:
        connection.request("GET", "/metrics", headers={"Accept": _ACCEPT})
        response = connection.getresponse()
        return response.headers["content-type"], one.page(response.read())
    finally:
        connection.close()
