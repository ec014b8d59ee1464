"""Asks a server once whether it is an engine."""

from typing import NamedTuple

from oomcast_collectors import exposition_text
from oomcast_collectors.engine.detect import kind_of, places
from oomcast_collectors.engine.kinds import NAMES
from oomcast_collectors.engine.reading import Kind
from oomcast_collectors.fetch import Fetcher, FetchError

_TIMEOUT = 2.0


class Answer(NamedTuple):
    """url: of the page that is of a known kind. broken: whatever listens there does not speak HTTP."""

    url: str = ""
    kind: Kind | None = None
    broken: bool = False


def probe(host: str) -> Answer:
    """host: address:port. A server that does not answer costs 2 s, and is not asked for its other pages."""
    for place in places(f"http://{host}"):
        # A page at another port than this is found by asking that.
        if place.only is not None:
            continue
        try:
            kind = _kind_at(place.url)
        except FetchError as error:
            if error.kind != "status":
                return Answer(broken=error.kind == "broken")
        else:
            if kind is not None:
                return Answer(place.url, kind)
    return Answer()


def _kind_at(url: str) -> Kind | None:
    """Raises FetchError."""
    fetcher = Fetcher(url, timeout=_TIMEOUT)
    try:
        return kind_of({line.name for line in exposition_text.read(fetcher.get(), NAMES)})
    finally:
        fetcher.close()
