"""What the kernel says about killed and crashed processes: a line of its log -> what it states, or None.

Comms, cgroup paths and module names are chosen by whoever runs there and hold any character. So each line is
matched as a whole and split where only the kernel's own words can be, and every repetition is bounded.
"""

import re
from dataclasses import dataclass

_CONSTRAINTS = {"MEMCG": "memcg", "NONE": "none", "CPUSET": "cpuset", "MEMORY_POLICY": "memory_policy"}

_OOM_HEAD = re.compile(r"oom-kill:constraint=(?:CONSTRAINT_)?(\w{1,32}),")
# A kernel without cpusets prints no cpuset and mems_allowed, one without memory cgroups no paths.
_OOM_PATHS = re.compile(
    r"(?:nodemask=[^=]{0,4096}?|,mems_allowed=[\d,-]{0,4096}?)(?:,global_oom|,oom_memcg=|(?=,task=))"
)
_OOM_TAIL = re.compile(r",pid=(\d{1,10}),uid=(\d{1,10})\Z")
_TASK_IN = re.compile(r"Task in (/.*)\Z", re.S)
_GROUP = re.compile(r"Tasks in (/.*) are going to be killed due to memory\.oom\.group set\Z", re.S)
_PREFIX = r"(?:(Memory cgroup out of memory|Out of memory)(?: \([^)]{1,64}\))?: )?"
_CHOSEN = re.compile(_PREFIX + r"Kill process \d{1,10} \(.{0,64}\) score -?\d{1,20} or sacrifice child\Z", re.S)
_KILLED = re.compile(
    _PREFIX + r"Killed process (\d{1,10}) \((.{0,64})\)(?:, UID (\d{1,10}),)? (total-vm:\d{1,20}kB.*)\Z", re.S
)
_AMOUNT = re.compile(r"\b(anon-rss|file-rss|shmem-rss|UID|oom_score_adj):(-?\d{1,18})")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The line `oom-kill:`, since 5.0. cgroup: the victim's; limit_cgroup: whose limit it was, "" for the machine's;
    constraint: as in `_CONSTRAINTS`, "" for another."""

    pid: int
    comm: str
    cgroup: str
    limit_cgroup: str
    constraint: str


@dataclass(frozen=True, slots=True)
class Killed:
    """The line `Killed process`, one for each kill. constraint: "memcg", or "" where the line leaves it open.
    Bytes, uid and oom_score_adj are None where the kernel is too old to print them."""

    pid: int
    comm: str
    constraint: str
    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    uid: int | None = None
    oom_score_adj: int | None = None


def parse_verdict(text: str, comm: str | None = None) -> Verdict | None:
    """`oom-kill:constraint=..,task_memcg=/a,task=python,pid=1,uid=0`. comm: the victim's where it is known from
    elsewhere, since neither the path nor the name before `,pid=` has an end of its own."""
    head, tail = _OOM_HEAD.match(text), _OOM_TAIL.search(text)
    paths = _OOM_PATHS.search(text, head.end()) if head else None
    if head is None or tail is None or paths is None or paths.end() > tail.start():
        return None
    rest = text[paths.end() : tail.start()]
    if comm is not None and rest.endswith(f",task={comm}"):
        rest, task = rest.removesuffix(f",task={comm}"), comm
    elif ",task=" in rest:
        rest, _, task = rest.rpartition(",task=")
    else:
        return None
    limit, cgroup = _split_paths(rest, ",task_memcg=", outer_first=True)
    return Verdict(int(tail[1]), task, cgroup, limit, _CONSTRAINTS.get(head[1], ""))


def parse_task_in(text: str) -> tuple[str, str] | None:
    """`Task in /a killed as a result of limit of /b`, before 5.0: (victim's cgroup, limiting cgroup)."""
    match = _TASK_IN.match(text)
    separator = " killed as a result of limit of "
    if match is None or separator not in match[1]:
        return None
    limit, cgroup = _split_paths(match[1], separator, outer_first=False)
    return cgroup, limit


def parse_group(text: str) -> str | None:
    """`Tasks in /x are going to be killed due to memory.oom.group set`: the cgroup."""
    match = _GROUP.match(text)
    return match[1] if match else None


def parse_chosen(text: str) -> str | None:
    """`Kill process 1 (a) score 2 or sacrifice child`, before 5.1: the constraint as in `Killed`. It announces a
    kill, of this process or of a child of it; it is not one."""
    match = _CHOSEN.match(text)
    return None if match is None else _constraint(match[1])


def parse_killed(text: str) -> Killed | None:
    """`[Memory cgroup out of memory: |Out of memory: ]Killed process 1 (a) total-vm:2kB, anon-rss:..` of any kernel."""
    match = _KILLED.match(text)
    if match is None:
        return None
    amounts = {key: int(value) for key, value in _AMOUNT.findall(match[5])}
    if match[4]:
        amounts["UID"] = int(match[4])
    return Killed(
        int(match[2]),
        match[3],
        _constraint(match[1]),
        _bytes(amounts.get("anon-rss")),
        _bytes(amounts.get("file-rss")),
        _bytes(amounts.get("shmem-rss")),
        amounts.get("UID"),
        amounts.get("oom_score_adj"),
    )


def within(cgroup: str, ancestor: str) -> bool:
    """Whether `cgroup` is `ancestor` or below it."""
    return ancestor in ("/", cgroup) or cgroup.startswith(ancestor + "/")


def _split_paths(text: str, separator: str, *, outer_first: bool) -> tuple[str, str]:
    """(outer, inner) of two paths of which one holds the other; of the places where a path that itself holds the
    separator could be cut, the first at which it does."""
    first: tuple[str, str] | None = None
    at = text.find(separator)
    while at >= 0:
        left, right = text[:at], text[at + len(separator) :]
        outer, inner = (left, right) if outer_first else (right, left)
        if within(inner, outer):
            return outer, inner
        first = first or (outer, inner)
        at = text.find(separator, at + 1)
    return first or ("", "")


def _constraint(prefix: str | None) -> str:
    return "memcg" if prefix == "Memory cgroup out of memory" else ""


def _bytes(kilobytes: int | None) -> int | None:
    return None if kilobytes is None else kilobytes * 1024
