"""The pages of engines that tests read: captures, and those written by hand."""

from dataclasses import replace
from pathlib import Path

from oomcast_collectors.engine.detect import kinds_of
from oomcast_collectors.engine.kinds import NAMES, read
from oomcast_collectors.engine.reading import Reading
from oomcast_collectors.exposition_text import Line
from oomcast_collectors.exposition_text import read as read_text

FIXTURES = Path(__file__).parents[2] / "fixtures" / "engines"
CAPTURES = sorted(path.stem for path in FIXTURES.glob("*.prom"))
WRITTEN = sorted(f"written/{path.stem}" for path in (FIXTURES / "written").glob("*.prom"))


def text(name: str) -> str:
    return (FIXTURES / f"{name}.prom").read_text()


def lines(page: str) -> list[Line]:
    return list(read_text(page.encode(), NAMES))


def reading(page: str) -> Reading:
    """The page as the collector reads it: found out what it is, then read."""
    found = lines(page)
    return read(kinds_of({line.name for line in found}), found)


def without_histograms(found: Reading) -> Reading:
    return replace(found, lengths=None, latencies={}, paired=None)
