"""Which files are to be followed: those that settings name, and the logs of pods."""

import fnmatch
import glob
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from oomcast_collectors.engine_log.settings import LogFiles

MAX_FILES = 256
_MOST_ENTRIES = 10_000
_PREDECESSOR = re.compile(r"\.(?:gz|bz2|xz|zst|lz4|zip|Z|old|\d{1,3})\Z|[._-]\d{4}-?\d\d-?\d\d(?:[T_-][\dTZ_:-]*)?\Z")
_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_POD = re.compile(rf"({_NAME})_({_NAME})_[0-9A-Za-z][0-9A-Za-z.-]{{0,127}}\Z")
_CONTAINER = re.compile(rf"{_NAME}\Z")
_LOG = re.compile(r"(\d{1,9})\.log\Z")


class Wanted(NamedTuple):
    """A file to follow. fields: what events of it say of where it is."""

    path: Path
    engine: str
    fields: Mapping[str, str]


class Sources:
    """pods: the node's /var/log/pods, or None; names: patterns of containers' or pods' names. For one thread."""

    def __init__(self, files: Sequence[LogFiles], pods: Path | None, names: Sequence[str], log: logging.Logger) -> None:
        self._files = files
        self._pods = pods
        self._names = names
        self._log = log
        self._told: set[str] = set()

    def wanted(self) -> dict[Path, Wanted]:
        """What is to be followed now, at most MAX_FILES; a file that is named twice is the first one's."""
        found: dict[Path, Wanted] = {}
        for one in self._all():
            if len(found) == MAX_FILES and one.path not in found:
                self._say(f"more than {MAX_FILES} log files: the rest is not followed")
                break
            found.setdefault(one.path, one)
        return found

    def _all(self) -> Iterator[Wanted]:
        for entry in self._files:
            for pattern in entry.paths:
                for path in self._matches(pattern):
                    yield Wanted(path, entry.engine, {"file": _shown(path.name)})
        if self._pods is not None:
            yield from self._containers(self._pods)

    def _matches(self, pattern: str) -> list[Path]:
        if not glob.has_magic(pattern):
            return [Path(pattern)]
        # Path.glob would have to be told where the first wildcard is.
        names = islice(glob.iglob(pattern), _MOST_ENTRIES)  # noqa: PTH207 - Path.glob takes no absolute pattern
        return [Path(name) for name in sorted(names) if not _PREDECESSOR.search(name)]

    def _containers(self, root: Path) -> Iterator[Wanted]:
        for directory in self._entries(root):
            pod = _POD.match(directory)
            for container in self._entries(root / directory) if pod else ():
                if pod and _CONTAINER.match(container) and self._is_engine(pod[2], container):
                    yield from self._newest(root / directory / container, pod[1], pod[2])

    def _is_engine(self, *names: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self._names)

    def _newest(self, directory: Path, namespace: str, pod: str) -> Iterator[Wanted]:
        """The log of the container's last start; those before are finished."""
        numbers = [int(match[1]) for name in self._entries(directory) if (match := _LOG.match(name))]
        if numbers:
            path = directory / f"{max(numbers)}.log"
            fields = {"file": path.name, "namespace": namespace, "pod": pod, "container": directory.name}
            yield Wanted(path, directory.name, fields)

    def _entries(self, path: Path) -> list[str]:
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in islice(entries, _MOST_ENTRIES))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._say(f"{path}: {error.strerror}")
            return []

    def _say(self, trouble: str) -> None:
        if trouble not in self._told and len(self._told) < 100:
            self._told.add(trouble)
            self._log.warning("%s", trouble)


def _shown(name: str) -> str:
    """A file may be called anything: bytes that are no UTF-8 and what no line should hold are escaped."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else "?" for c in text)
