"""Draws dashboards by grafana/pictures, and says what is wrong with what came out."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

GRAFANA = Path(__file__).parents[1]
BOARDS = GRAFANA / "dashboards"
PICTURES = GRAFANA.parent / "docs" / "pictures" / "dashboards"
_TOOL = GRAFANA / "pictures" / "shot.mjs"
_SECONDS = 420.0
_ERRORS = ("failures", "queryErrors", "panelErrors", "pageErrors", "blankPanels", "overlaps", "cutTitles")


class Shot(NamedTuple):
    """board: the key in its uid. name: of the file, without its ending. since, until: seconds since the epoch.

    expand: with folded rows open.
    """

    board: str
    name: str
    since: float
    until: float
    width: int
    theme: str = "dark"
    variables: Mapping[str, str] = {}
    expand: bool = False


def draw(shots: Sequence[Shot], prometheus: str, folder: Path) -> Sequence[Mapping[str, Any]]:
    """Draws all of them into `folder`; gives what the tool reports of each.

    Raises CalledProcessError where the tool itself does not work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    batch = folder / "batch.json"
    batch.write_text(json.dumps([_asked(shot, folder) for shot in shots]))
    command = ["node", str(_TOOL), "--batch", str(batch), "--prometheus", prometheus, "--scrape", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    if len(reports) != len(shots):
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return reports


def _asked(shot: Shot, folder: Path) -> dict[str, Any]:
    return {
        "dashboard": str(BOARDS / f"oomcast-{shot.board}.json"),
        "out": str(folder / f"{shot.name}.png"),
        "from": str(round(shot.since * 1000)),
        "to": str(round(shot.until * 1000)),
        "width": shot.width,
        "theme": shot.theme,
        "var": dict(shot.variables),
        "expand": shot.expand,
    }


def shrink(folder: Path, names: Sequence[str]) -> None:
    """Puts pictures of 1600 pixels into docs/pictures/dashboards, with fewer colours: a third of the size."""
    # For this alone, and only tests' packages have it.
    from PIL import Image

    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in names:
        with Image.open(folder / f"{name}-1600.png") as picture:
            picture.convert("RGB").quantize(128).save(PICTURES / f"{name}.png", optimize=True)


def wrong(report: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a picture, whatever it should show."""
    for kind in _ERRORS:
        yield from (f"{kind}: {one}" for one in report.get(kind, ()))


def empty(report: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Queries without data: the title of the panel, and the expression."""
    return {(one["asker"], one["expression"]) for one in report["emptyQueries"]}


def asked(report: Mapping[str, Any]) -> set[tuple[str, str]]:
    """All queries, with data or without."""
    return {(one["asker"], one["expression"]) for one in report["queries"]}
