"""The probe major_faults: how often targets waited for memory to be read from a disk, and of which files."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.faults.file_kinds import KINDS, FileKinds
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.description import Description
from oomcast_collectors.ebpf.privileges import DEBUGFS_TRACEFS, TRACEFS
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Row
from oomcast_collectors.host.files import read_once
from oomcast_collectors.host.processes import parse_stat

_EVERY = 1.0
_STAT_LIMIT = 4096
_File = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Followed:
    """A target. before: its faults when it was first seen. total: since then. files: by device and inode."""

    process: Process
    kinds: FileKinds
    before: int
    total: int = 0
    none: int = 0
    files: Mapping[_File, int] = field(default_factory=dict)


class MajorFaultsPart:
    """The kernel counts the faults of a process exactly; the program only says of which files they were."""

    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._proc = tools.proc
        self._by_file = bool(program.description.tracepoints)
        self._targets: Any = program.table("targets")
        self._followed: dict[int, _Followed] = {}
        self._gone: Counter[tuple[str, str]] = Counter()
        self._due = 0.0

    def joined(self, process: Process) -> None:
        before = self._major_faults(process)
        if before is None:
            return
        followed = _Followed(process, FileKinds(self._proc, process.pid), before)
        if self._by_file:
            followed.kinds.look()
            self._targets[self._targets.Key(process.pid)] = self._targets.Leaf(1)
        self._followed[process.pid] = followed

    def left(self, process: Process) -> None:
        followed = self._followed.pop(process.pid, None)
        if followed is None:
            return
        if self._by_file:  # first, so that no file is added after they were read
            _delete(self._targets, self._targets.Key(process.pid))
        self._read([followed])
        self._gone.update({(process.name, kind): count for kind, count in self._counts(followed).items()})
        if self._by_file:
            files = self._program.table("files")
            for device, inode in followed.files:
                _delete(files, files.Key(inode=inode, device=device, pid=process.pid))

    def tick(self, now: float) -> None:
        if now >= self._due:
            self._due = now + _EVERY
            self._read(list(self._followed.values()))

    def rows(self) -> Iterator[Row]:
        sums = Counter(self._gone)
        for followed in self._followed.values():
            for kind, count in self._counts(followed).items():
                sums[followed.process.name, kind] += count
        for labels, count in sums.items():
            yield Row(metrics.MAJOR_FAULTS.name, labels, count)
        lost = sum(count for _, count in self._program.rows("lost"))
        yield Row(metrics.PROBE_LOST.name, (self._program.name, "files"), lost)

    def close(self) -> None:
        return

    def _read(self, followed: list[_Followed]) -> None:
        # First the totals: a fault is among its file's before it is among those of its process.
        for one in followed:
            faults = self._major_faults(one.process)
            if faults is not None:
                one.total = max(one.total, faults - one.before)
        if not self._by_file or not followed:
            return
        files: dict[int, dict[_File, int]] = {one.process.pid: {} for one in followed}
        for key, count in self._program.rows("files"):
            if key.pid in files:
                files[key.pid][int(key.device), int(key.inode)] = count
        for one in followed:
            one.files = files[one.process.pid]
            if any(one.kinds.kind(*file) is None for file in one.files):
                one.kinds.look()
            one.none = max(one.none, one.total - sum(one.files.values()))

    def _counts(self, followed: _Followed) -> Mapping[str, int]:
        if not self._by_file:
            return {"": followed.total}
        counts = dict.fromkeys(KINDS, 0)
        for file, count in followed.files.items():
            # What was mapped for less than a second may have no name here.
            counts[followed.kinds.kind(*file) or "other"] += count
        return {**counts, "none": followed.none}

    def _major_faults(self, process: Process) -> int | None:
        """Those of all its threads and of none of its children; None once it is gone."""
        try:
            stat = parse_stat(read_once(f"{self._proc}/{process.pid}/stat", _STAT_LIMIT))
        except OSError:
            return None
        return stat.major_faults if stat is not None and stat.start_time == process.start else None


def adapt(description: Description, text: str, settings: EbpfSettings) -> tuple[Description, str, Mapping[str, int]]:
    """Without the tracepoints where the kernel lacks one: the other alone would cost all processes for nothing."""
    events = [point.event.replace(":", "/") for point in description.tracepoints]
    if not all(any(_is_there(f"{root}/events/{event}") for root in (TRACEFS, DEBUGFS_TRACEFS)) for event in events):
        description = description.model_copy(update={"tracepoints": ()})
    return description, text, {}


def _is_there(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - unlike Path it is not upset by a folder that is closed to us


def _delete(table: Any, key: Any) -> None:
    try:
        del table[key]
    except KeyError:  # its table was full when it came
        return
