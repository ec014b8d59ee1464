"""Puts together what the kernel prints about one kill in several lines, of which some may be missing.

`Killed process` is the kill, and the only line that is never rate-limited; the lines that name its cgroup are
printed ten times in five seconds at most. All lines of one kill are printed under one kernel-wide lock, so
that those of two kills do not mix.
"""

from collections.abc import Callable
from dataclasses import dataclass

from oomcast_collectors.kernel_log import parse

# A slow serial console stretches the lines of one kill over seconds, and nothing else can pair falsely in
# that time: a verdict names its victim. The members of a group are killed in one loop, without such a name.
_VERDICT_USEC = 30_000_000
_GROUP_USEC = 5_000_000


@dataclass(frozen=True, slots=True)
class OomKill:
    """cgroup: the victim's, limit_cgroup: whose limit it was, both "" if unknown. repeated: the kernel printed this
    victim once already, as some do for a group's first one."""

    killed: parse.Killed
    cgroup: str
    limit_cgroup: str
    constraint: str
    repeated: bool = False


@dataclass(slots=True)
class _Group:
    """cgroups: of the victims so far, by pid."""

    path: str
    limit: str
    usec: int
    cgroups: dict[int, str]


class OomJoiner:
    """Takes the lines in their order. cgroup_of(pid, comm): where a victim that is still dying is, or ""."""

    def __init__(self, cgroup_of: Callable[[int, str], str]) -> None:
        self._cgroup_of = cgroup_of
        self._verdict: tuple[str, parse.Verdict, int] | None = None
        self._task_in: tuple[str, str] | None = None
        self._chosen = ""
        self._group: _Group | None = None
        self._last: tuple[OomKill, int] | None = None

    def reset(self) -> None:
        """Lines were lost, or another kill begins: what was announced belongs to nothing that follows."""
        self._verdict = None
        self._task_in = None
        self._chosen = ""
        self._group = None
        self._last = None

    def feed(self, text: str, usec: int) -> OomKill | None:
        """The kill that this line states, if it states one. usec: the kernel's time of the line."""
        killed = parse.parse_killed(text)
        if killed is not None:
            kill = self._join(killed, usec)
            self._last = (kill, usec)
            return kill
        if verdict := parse.parse_verdict(text):
            self.reset()
            self._verdict = (text, verdict, usec)
        elif task_in := parse.parse_task_in(text):
            self._task_in = task_in
        elif (chosen := parse.parse_chosen(text)) is not None:
            self._chosen = chosen
        elif group := parse.parse_group(text):
            self._begin_group(group, usec)
        elif " invoked oom-killer: " in text:
            self.reset()
        return None

    def _begin_group(self, path: str, usec: int) -> None:
        self._group = _Group(path, "", usec, {})
        if self._last is not None and usec - self._last[1] <= _GROUP_USEC:
            first = self._last[0]
            self._group.cgroups[first.killed.pid] = first.cgroup or path
            self._group.limit = first.limit_cgroup

    def _join(self, killed: parse.Killed, usec: int) -> OomKill:
        constraint = killed.constraint or self._chosen
        if (verdict := self._take_verdict(killed, usec)) is not None:
            return OomKill(killed, verdict.cgroup, verdict.limit_cgroup, verdict.constraint or constraint)
        if self._task_in is not None:
            cgroup, limit = self._task_in
            self.reset()
            return OomKill(killed, cgroup, limit, "memcg")
        group = self._fresh_group(usec)
        if group is not None and killed.pid in group.cgroups:
            return OomKill(killed, group.cgroups[killed.pid], group.limit, constraint, repeated=True)
        cgroup = self._cgroup_of(killed.pid, killed.comm)
        if group is None or (cgroup and not parse.within(cgroup, group.path)):
            self.reset()
            return OomKill(killed, cgroup, "", constraint)
        cgroup = group.cgroups[killed.pid] = cgroup or group.path
        return OomKill(killed, cgroup, group.limit, constraint)

    def _take_verdict(self, killed: parse.Killed, usec: int) -> parse.Verdict | None:
        if self._verdict is None:
            return None
        text, verdict, since = self._verdict
        self._verdict = None
        if verdict.pid != killed.pid or usec - since > _VERDICT_USEC:
            return None
        # This line has the victim's name between brackets: with it the verdict can be split without doubt.
        return parse.parse_verdict(text, killed.comm)

    def _fresh_group(self, usec: int) -> _Group | None:
        return self._group if self._group is not None and usec - self._group.usec <= _GROUP_USEC else None
