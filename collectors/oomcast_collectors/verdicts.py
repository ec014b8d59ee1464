"""A question about every process of the node, asked again ever more rarely of those that it does not apply to."""

import os
from collections.abc import Callable
from dataclasses import dataclass

_MOST_LOOKS = 500
"""Processes that are judged per scan: a tenth of a second where it takes reading their descriptors."""

_LONGEST_GAP = 32


@dataclass(slots=True)
class _Known:
    """inode: of /proc/PID, which lives no longer than the process. due, gap: in scans."""

    inode: int
    answer: str
    due: int
    gap: int


class Verdicts:
    """judge: what a process is called, "" if it is none of those; raises OSError when the process is gone or cannot be
    looked into, which is no. Keep the object. Not thread-safe."""

    def __init__(self, proc: str, judge: Callable[[int], str]) -> None:
        self._proc = proc
        self._judge = judge
        self._known: dict[int, _Known] = {}
        self._scan = 0

    def find(self) -> dict[int, str]:
        """The answers by pid. Raises OSError when /proc cannot be listed."""
        self._scan += 1
        before, self._known = self._known, {}
        looks = _MOST_LOOKS
        with os.scandir(self._proc) as entries:
            for entry in entries:
                if not (entry.name.isdigit() and entry.name.isascii()):
                    continue
                pid, inode = int(entry.name), entry.inode()
                known = before.get(pid)
                if known is None or known.inode != inode:
                    known = _Known(inode, "", self._scan, 1)
                if not known.answer and known.due <= self._scan and looks > 0:
                    looks -= 1
                    known.answer = self._ask(pid)
                    # The pid spreads those that were all seen first at the same time.
                    known.due = self._scan + known.gap + pid % known.gap
                    known.gap = min(2 * known.gap, _LONGEST_GAP)
                self._known[pid] = known
        return {pid: known.answer for pid, known in self._known.items() if known.answer}

    def _ask(self, pid: int) -> str:
        try:
            return self._judge(pid)
        except OSError:
            return ""
