"""Whom the OOM killer killed. The cgroup is looked up while the victim is dying, as afterwards nobody knows it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oomcast.contract import Event
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.deaths.departed import Departed
from oomcast_collectors.ebpf.child.moment import moment
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.description import Description
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.wire import Row
from oomcast_collectors.kernel_log.victim import victim_cgroup

_FORMATS = tuple(
    Path(folder, "events/oom/mark_victim/format") for folder in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
)
_DETAILS: Mapping[str, int] = {"pid": 8, "comm": 12, "anon_rss": 24, "file_rss": 32, "shmem_rss": 40, "uid": 48}
"""Offsets of the tracepoint's fields, as the program has them."""
_FIELD = re.compile(r"field:[^;]*?(\w+)(?:\[\d*\])?;\s*offset:(\d+);")


def adapt(description: Description, text: str, _: EbpfSettings) -> tuple[Description, str, Mapping[str, int]]:
    return description, text, {"DETAILED": int(detailed(_format()))}


def detailed(text: str) -> bool:
    """Whether a tracepoint of this format has a victim's name and memory where the program looks for them."""
    offsets = {name: int(offset) for name, offset in _FIELD.findall(text)}
    return all(offsets.get(name) == offset for name, offset in _DETAILS.items())


class OomKillsPart:
    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._tools = tools
        self._departed = Departed(tools.clock)
        tools.events.open(program, "victims", self._take)

    def joined(self, process: Process) -> None:
        self._departed.back(process.pid)

    def left(self, process: Process) -> None:
        self._departed.add(process)

    def tick(self, now: float) -> None:
        return

    def rows(self) -> Iterator[Row]:
        yield Row(metrics.VICTIMS.name, (), sum(n for _, n in self._program.rows("kills")))
        yield Row(metrics.PROBE_LOST.name, ("oom_kills", "victims"), sum(n for _, n in self._program.rows("lost")))

    def close(self) -> None:
        return

    def _take(self, victim: Any) -> None:
        pid = victim.pid
        process = self._tools.targets.get(pid) or self._departed.get(pid)
        comm = victim.comm.decode("utf-8", "backslashreplace") or self._comm(pid) or (process.comm if process else "")
        fields: dict[str, str | int | float] = {"witness": "ebpf", "pid": pid}
        if comm:
            fields["comm"] = comm
        cgroup = victim_cgroup(Path(self._tools.proc), pid, comm) or (process.cgroup if process else "")
        if cgroup:
            fields["cgroup"] = cgroup
        if victim.detailed:
            fields |= {
                "anon_bytes": victim.anon << 10,
                "file_bytes": victim.file << 10,
                "shmem_bytes": victim.shmem << 10,
                "uid": victim.uid,
            }
        where = f" in {cgroup}" if cgroup else ""
        summary = f"OOM kill of {comm or '?'}[{pid}]{where}"
        self._tools.tell(Event("oom_kill", *moment(self._tools.clock, victim.when), summary, fields))

    def _comm(self, pid: int) -> str:
        try:
            return Path(self._tools.proc, str(pid), "comm").read_text("utf-8", "backslashreplace").removesuffix("\n")
        except OSError:
            return ""


def _format() -> str:
    """ "" where the tracepoint is not to be seen; then it cannot be attached either."""
    for path in _FORMATS:
        try:
            return path.read_text()
        except OSError:
            continue
    return ""
