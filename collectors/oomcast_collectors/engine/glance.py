"""One look at an engine, for a command: no thread, and nothing of what was before."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from oomcast_collectors import exposition_text
from oomcast_collectors.engine import admission, kinds
from oomcast_collectors.engine.detect import kinds_of, places
from oomcast_collectors.engine.reading import Kind, Pool, Reading
from oomcast_collectors.engine.source import UnknownEngine
from oomcast_collectors.fetch import Fetcher, FetchError

_KEPT_BACK: Mapping[Kind, int] = {"vllm": 1}
"""Blocks of a pool that no request ever gets."""


@dataclass(frozen=True, slots=True)
class Glance:
    """silent: by path, in a word or two, why a page that would have told more gave nothing."""

    reading: Reading
    silent: Mapping[str, str]


def glance(url: str, fetcher: Callable[[str], Fetcher]) -> Glance:
    """url: of the engine, or of its metrics. fetcher: makes one for a URL.

    Raises FetchError, UnknownEngine, and ValueError where the URL's port is no number.
    """
    found, page = _page(url, fetcher)
    wanted = frozenset().union(*(kinds.KINDS[kind].names for kind in found))
    reading = kinds.read(found, exposition_text.read(page, wanted))
    silent: dict[str, str] = {}
    root = urlsplit(url)._replace(path="", query="", fragment="").geturl()
    with closing(fetcher(root)) as server:
        for extra in (extra for kind in found for extra in kinds.KINDS[kind].extras):
            try:
                reading = extra.apply(json.loads(server.get(extra.path)), reading)
            except FetchError as error:
                silent[extra.path] = f"HTTP {error.status}" if error.status else error.kind
            except (ValueError, RecursionError):
                silent[extra.path] = "no JSON"
    return Glance(reading, silent)


def largest_now(reading: Reading) -> int | None:
    """Tokens of the largest request that the KV memory has room for now, as far as the pools tell; None where none
    does."""
    return admission.largest_request(replace(reading, max_model_len=None))


def largest_empty(reading: Reading) -> int | None:
    """The same without any other request; None where one of the pools does not tell what it holds."""
    if not reading.pools or any(pool.capacity is None for pool in reading.pools):
        return None
    emptied = tuple(_emptied(pool, _KEPT_BACK.get(reading.kind, 0)) for pool in reading.pools)
    largest = largest_now(replace(reading, pools=emptied))
    return largest if largest is None else max(largest, largest_now(reading) or 0)


def _emptied(pool: Pool, kept_back: int) -> Pool:
    capacity = (pool.capacity or 0) - kept_back * (pool.block or 0)
    return pool._replace(capacity=capacity, available=capacity, usage=0.0)


def _page(url: str, fetcher: Callable[[str], Fetcher]) -> tuple[Sequence[Kind], bytes]:
    """The kinds of engine that are on the first page of a known one, and that page."""
    failed: FetchError | None = None
    dead: set[str] = set()
    for place in places(url):
        address = urlsplit(place.url).netloc
        if address in dead:
            continue
        with closing(fetcher(place.url)) as server:
            try:
                page = server.get()
            except FetchError as error:
                failed = failed or error
                if error.kind != "status":
                    dead.add(address)
                continue
        found = kinds_of({line.name for line in exposition_text.read(page, kinds.NAMES)})
        if found and place.only in (None, found[0]):
            return found, page
    if failed is not None and failed.kind != "status":
        raise failed
    raise UnknownEngine("no metrics of a known engine; they may be switched off")
