"""What is wrong with the files that the host collector reads: counted on every run, logged when it changes."""

import errno
import logging
from collections import Counter

from oomcast.metric import Metric, Sample
from oomcast_collectors.host.counters import RESOURCES

KEPT = ("meminfo", "vmstat", *(f"pressure/{r}" for r in RESOURCES))
FILES = (*KEPT, "zoneinfo", "status")
_NOT_THERE = (errno.ENOENT, errno.EOPNOTSUPP)

PARSE_ERRORS = Metric(
    "oomcast_host_parse_errors_total",
    "counter",
    "Lines of the file under /proc that a run could not understand; their series are absent from it.",
    ("file",),
    absent="the collector is off or has not run",
)
READ_ERRORS = Metric(
    "oomcast_host_read_errors_total",
    "counter",
    "Runs in which the file under /proc could not be read although the kernel has it; file=status: in which the"
    " processes could not be looked at.",
    ("file",),
    absent="the collector is off or has not run",
)
METRICS = (PARSE_ERRORS, READ_ERRORS)


class Troubles:
    """Counts what is wrong with a file on every run, and logs it when it begins, changes or ends."""

    def __init__(self, log: logging.Logger, created: float) -> None:
        self._log = log
        self._created = created
        self._state: dict[str, str] = {}
        self._parse = {file: PARSE_ERRORS.series(file) for file in FILES}
        self._read = {file: READ_ERRORS.series(file) for file in FILES}
        self._parse_errors: Counter[str] = Counter()
        self._read_errors: Counter[str] = Counter()

    def parsed(self, file: str, malformed: frozenset[str]) -> None:
        self._parse_errors[file] += len(malformed)
        self._now(file, f"malformed: {', '.join(sorted(malformed))}" if malformed else "")

    def unreadable(self, file: str, error: Exception) -> None:
        there = not (isinstance(error, OSError) and error.errno in _NOT_THERE)
        self._read_errors[file] += there
        self._now(file, f"unreadable: {error}" if there else f"not there: {error}")

    def _now(self, file: str, state: str) -> None:
        if state == self._state.get(file, ""):
            return
        self._state[file] = state
        # What the kernel does not have is no trouble, and on most hosts one of the files is not there.
        absent = state.startswith("not there")
        level = logging.DEBUG if absent else logging.WARNING if state else logging.INFO
        self._log.log(level, "%s: %s", file, state or "fine again")

    def samples(self) -> list[Sample]:
        out = [Sample(series, self._parse_errors[file], self._created) for file, series in self._parse.items()]
        out += [Sample(series, self._read_errors[file], self._created) for file, series in self._read.items()]
        return out
