"""Steps that each may be impossible, and a file of what they found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import describe

Found = dict[str, Any]


class NotMeasured(Exception):
    """Something that a step needs is not there."""


class Record:
    """What was found, in a file from the first step on: a pass that is cut short has not been for nothing.

    reasons: what a step may raise that cannot be done.
    """

    def __init__(self, path: Path, reasons: tuple[type[Exception], ...]) -> None:
        self._path = path
        self._reasons: tuple[type[Exception], ...] = (NotMeasured, *reasons)
        self._found: Found = {"machine": describe()}

    def step(self, title: str, measure: Callable[[], Found], *, show: bool = True) -> None:
        """One that cannot be done says why, and costs no other one."""
        try:
            found = measure()
        except self._reasons as reason:
            found, show = {"not measured": str(reason)}, True
        self._found[title] = found
        self._path.write_text(json.dumps(self._found, indent=1) + "\n")
        if show:
            print(f"{title}: {json.dumps(found)}", flush=True)
