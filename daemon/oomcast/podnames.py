"""Names of pods and containers from the node's log directories: no API server, no runtime socket, no secrets.

<logs>/pods/NAMESPACE_POD_UID/CONTAINER/N.log      the kubelet's, for every runtime
<logs>/containers/POD_NAMESPACE_CONTAINER-ID.log   the kubelet's link to each of them, named with the container's id
With docker N.log is itself a link, to /var/lib/docker/containers/ID/ID-json.log.
"""

import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from oomcast.clock import Clock

_AGE = 10.0
_AGE_ON_MISS = 1.0
_MOST_ENTRIES = 10_000
_MOST_CONTAINERS = 256
_MOST_LOGS = 64
_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_POD_DIR = re.compile(rf"({_NAME})_({_NAME})_([0-9A-Za-z][0-9A-Za-z.-]{{0,127}})\Z")
_CONTAINER = re.compile(rf"{_NAME}\Z")
_LINK = re.compile(rf"({_NAME})_({_NAME})_({_NAME})-([0-9a-f]{{64}})\.log\Z")
_ID = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class PodName:
    """containers: sorted, init containers and finished ones included, as far as their logs are still there."""

    namespace: str
    pod: str
    containers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pod:
    name: PodName
    ids: dict[str, str]


class PodNames:
    """root: the node's /var/log/pods; its sibling `containers` is used where it is there too.

    Answers come from a listing at most 10 s old; something unknown has it renewed, at most once a second, so what
    was unknown may be known a second later. Not for several threads at once.
    """

    def __init__(self, root: Path, clock: Clock, log: logging.Logger | None = None) -> None:
        self._root = root
        self._clock = clock
        self._log = log or logging.getLogger(__name__)
        self._listed: float | None = None
        self._dirs: dict[str, tuple[str, str, str]] = {}
        self._pods: dict[str, _Pod] = {}
        self._links: dict[str, tuple[str, str, str]] = {}
        self._linked: set[tuple[str, str]] = set()
        self._warned: set[str] = set()

    def pod(self, uid: str) -> PodName | None:
        """uid as the cgroup path has it, with dashes (a static pod's: 32 hex digits)."""
        found = self._find(uid)
        return found.name if found else None

    def container(self, uid: str, container_id: str) -> str:
        """The container's name, "" where it cannot be told (a pod's sandbox has none)."""
        found = self._find(uid)
        if found is None or not container_id:
            return ""
        name = self._container(found, container_id)
        if not name and self._relist(_AGE_ON_MISS):
            found = self._find(uid)
            name = self._container(found, container_id) if found else ""
        return name

    def _container(self, pod: _Pod, container_id: str) -> str:
        name = pod.name
        link = self._links.get(container_id)
        if link and link[:2] == (name.pod, name.namespace):
            return link[2]
        # Where the pod's containers are known by id, one that is not among them is its sandbox.
        if pod.ids or (name.pod, name.namespace) in self._linked:
            return pod.ids.get(container_id, "")
        return name.containers[0] if len(name.containers) == 1 else ""

    def _find(self, uid: str) -> _Pod | None:
        self._relist(_AGE)
        if uid not in self._dirs and not self._relist(_AGE_ON_MISS):
            return None
        where = self._dirs.get(uid)
        if where is None:
            return None
        if uid not in self._pods:
            self._pods[uid] = self._read_pod(*where)
        return self._pods[uid]

    def _relist(self, age: float) -> bool:
        now = self._clock.monotonic()
        if self._listed is not None and now - self._listed < age:
            return False
        self._listed = now
        self._pods = {}
        self._dirs = {}
        for name in self._entries(self._root, _MOST_ENTRIES):
            if match := _POD_DIR.match(name):
                self._dirs[match[3]] = (match[1], match[2], name)
        self._links = {}
        for name in self._entries(self._root.parent / "containers", _MOST_ENTRIES):
            if match := _LINK.match(name):
                self._links[match[4]] = (match[1], match[2], match[3])
        self._linked = {link[:2] for link in self._links.values()}
        return True

    def _read_pod(self, namespace: str, pod: str, directory: str) -> _Pod:
        path = self._root / directory
        names = sorted(n for n in self._entries(path, _MOST_CONTAINERS) if _CONTAINER.match(n))
        ids = {found: name for name in names for found in self._docker_ids(path / name)}
        return _Pod(PodName(namespace, pod, tuple(names)), ids)

    def _docker_ids(self, path: Path) -> Iterator[str]:
        for name in self._entries(path, _MOST_LOGS):
            if name.endswith(".log"):
                try:
                    target = (path / name).readlink()
                except OSError:
                    continue
                yield from (part for part in target.parts if _ID.match(part))

    def _entries(self, path: Path, most: int) -> Iterable[str]:
        """Names in a directory, at most `most`; none where it cannot be read, which is said once for each reason."""
        try:
            with os.scandir(path) as entries:
                names = [entry.name for entry in islice(entries, most + 1)]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            self._warn(f"{type(error).__name__}", "%s: pods go without names: %s", path, error.strerror)
            return ()
        if len(names) > most:
            self._warn("many", "%s has more than %d entries: the rest goes without names", path, most)
        return names[:most]

    def _warn(self, reason: str, message: str, *values: object) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            self._log.warning(message, *values)
