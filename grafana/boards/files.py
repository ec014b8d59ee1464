"""All boards as files."""

from collections.abc import Iterator
from pathlib import Path

from boards import fleet, forensics, itself, long_context, node
from boards.board import render
from oomcast.rules.config import Config

FOLDER = Path(__file__).parents[1] / "dashboards"


def files(config: Config | None = None) -> Iterator[tuple[Path, str]]:
    """Each dashboard and what it should hold. config: of the rules, for thresholds and addresses of runbooks."""
    config = config or Config()
    for theme in (fleet, node, long_context, forensics, itself):
        board = theme.board(config.limits)
        yield FOLDER / f"oomcast-{board.key}.json", render(board, config)
