"""The lines of the OOM killer, of every kernel since 4.x. Lines with a capture are tested in test_captures.py."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast_collectors.kernel_log import parse
from oomcast_collectors.kernel_log.parse import Killed, Verdict

HEAD = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{HEAD},oom_memcg=/b,task_memcg=/b/a,task=python,pid=123,uid=1000",
            Verdict(123, "python", "/b/a", "/b", "memcg"),
        ),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,4,global_oom,"
            "task_memcg=/user.slice,task=hog,pid=7,uid=0",
            Verdict(7, "hog", "/user.slice", "", "none"),
        ),
        (
            "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0,2-3,cpuset=jobs,mems_allowed=0,2-3,global_oom,"
            "task_memcg=/,task=hog,pid=7,uid=0",
            Verdict(7, "hog", "/", "", "cpuset"),
        ),
        (
            "oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=1,cpuset=/,mems_allowed=0-1,global_oom,"
            "task_memcg=/a,task=hog,pid=7,uid=0",
            Verdict(7, "hog", "/a", "", "memory_policy"),
        ),
        # A constraint of a later kernel is no reason to lose the rest.
        (
            "oom-kill:constraint=CONSTRAINT_TIER,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            "task_memcg=/a,task=hog,pid=7,uid=0",
            Verdict(7, "hog", "/a", "", ""),
        ),
        # Built without memory cgroups; without cpusets.
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,task=hog,pid=7,uid=0",
            Verdict(7, "hog", "", "", "none"),
        ),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/b,task_memcg=/b,task=hog,pid=7,uid=0",
            Verdict(7, "hog", "/b", "/b", "memcg"),
        ),
        # Names that look like the kernel's own words.
        (
            f"{HEAD},oom_memcg=/a,b c,task_memcg=/a,b c/task=x,task=my job,pid=5,uid=3,pid=123,uid=0",
            Verdict(123, "my job,pid=5,uid=3", "/a,b c/task=x", "/a,b c", "memcg"),
        ),
        (
            f"{HEAD},oom_memcg=/a,task_memcg=/z,task_memcg=/a,task_memcg=/z/y,task=python,pid=1,uid=0",
            Verdict(1, "python", "/a,task_memcg=/z/y", "/a,task_memcg=/z", "memcg"),
        ),
        # systemd escapes its own way, and that is part of the path.
        (
            f"{HEAD},oom_memcg=/system.slice/a\\x2db.service,task_memcg=/system.slice/a\\x2db.service,task=a,pid=1,uid=0",
            Verdict(1, "a", "/system.slice/a\\x2db.service", "/system.slice/a\\x2db.service", "memcg"),
        ),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/b", None),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,pid=1,uid=0", None),
        ("usb 1-1: Product: " + HEAD + ",oom_memcg=/b,task_memcg=/b,task=a,pid=1,uid=0", None),
        ("oom_reaper: reaped process 14 (hog), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", None),
    ],
)
def test_verdict(text: str, expected: Verdict | None) -> None:
    assert parse.parse_verdict(text) == expected


def test_verdict_takes_the_name_that_is_known_from_elsewhere() -> None:
    text = f"{HEAD},oom_memcg=/b,task_memcg=/b/c,task=a,task=b,pid=1,uid=0"
    assert parse.parse_verdict(text) == Verdict(1, "b", "/b/c,task=a", "/b", "memcg")
    assert parse.parse_verdict(text, "a,task=b") == Verdict(1, "a,task=b", "/b/c", "/b", "memcg")
    assert parse.parse_verdict(text, "other") == Verdict(1, "b", "/b/c,task=a", "/b", "memcg")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Memory cgroup out of memory: Killed process 123 (my (job) 1) total-vm:9kB, anon-rss:5kB, file-rss:3kB, "
            "shmem-rss:2kB, UID:1000 pgtables:1kB oom_score_adj:-998",
            Killed(123, "my (job) 1", "memcg", 5120, 3072, 2048, 1000, -998),
        ),
        (
            "Out of memory: Killed process 1 () total-vm:9kB, anon-rss:0kB, file-rss:0kB, shmem-rss:0kB, UID:0 "
            "pgtables:0kB oom_score_adj:1000",
            Killed(1, "", "", 0, 0, 0, 0, 1000),
        ),
        (
            "Out of memory (oom_kill_allocating_task): Killed process 8 (a) total-vm:9kB, anon-rss:1kB, file-rss:0kB, "
            "shmem-rss:0kB, UID:0 pgtables:0kB oom_score_adj:0",
            Killed(8, "a", "", 1024, 0, 0, 0, 0),
        ),
        # 4.x, and 3.10 of RHEL 7.
        (
            "Killed process 14458 (normal-priority) total-vm:4176kB, anon-rss:88kB, file-rss:4kB, shmem-rss:0kB",
            Killed(14458, "normal-priority", "", 90112, 4096, 0),
        ),
        (
            "Killed process 22 (java), UID 48, total-vm:4176kB, anon-rss:88kB, file-rss:4kB, shmem-rss:0kB",
            Killed(22, "java", "", 90112, 4096, 0, 48),
        ),
        # A name that tries to end the line itself.
        (
            "Killed process 9 (a) total-vm:1kB) total-vm:7kB, anon-rss:2kB, file-rss:0kB",
            Killed(9, "a) total-vm:1kB", "", 2048, 0),
        ),
        ("Out of memory: Kill process 14294 (idle) score 876 or sacrifice child", None),
        ("sh: Killed process 1 (a) total-vm:1kB", None),
        ("Killed process 1 (a)", None),
    ],
)
def test_killed(text: str, expected: Killed | None) -> None:
    assert parse.parse_killed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Memory cgroup out of memory: Kill process 6584 (a) score 550000 or sacrifice child", "memcg"),
        ("Out of memory: Kill process 1 (a (b)) score 9 or sacrifice child", ""),
        ("Out of memory: Kill process 1 (a) score 9", None),
    ],
)
def test_chosen(text: str, expected: str | None) -> None:
    assert parse.parse_chosen(text) == expected


def test_task_in() -> None:
    words = " killed as a result of limit of "
    assert parse.parse_task_in(f"Task in /b/a{words}/b") == ("/b/a", "/b")
    assert parse.parse_task_in(f"Task in /x{words}/x/y{words}/x{words}/x") == (f"/x{words}/x/y", f"/x{words}/x")
    assert parse.parse_task_in("Task in /b/a") is None


def test_group() -> None:
    words = " are going to be killed due to memory.oom.group set"
    assert parse.parse_group(f"Tasks in /a b{words}{words}") == f"/a b{words}"
    assert parse.parse_group(f"Tasks in {words}") is None


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)
PATHS = st.lists(NAMES.map(lambda n: n.replace("/", "_") or "_"), max_size=4).map(lambda p: "/" + "/".join(p))
LINES = (
    f"{HEAD},oom_memcg=/b,task_memcg=/b/a,task=a,pid=1,uid=0",
    "Killed process 1 (a) total-vm:1kB",
    "Task in /a killed as a result of limit of /",
    "Tasks in /a are going to be killed due to memory.oom.group set",
)
PIECES = st.sampled_from([*LINES, *(piece for line in LINES for piece in re.split(r"(?<=[ ,=])", line))])


@settings(deadline=None)  # the machine may be busy
@given(st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=60).map("".join)))
def test_no_line_breaks_a_parser(text: str) -> None:
    for parser in (parse.parse_verdict, parse.parse_killed, parse.parse_chosen, parse.parse_task_in, parse.parse_group):
        parser(text)


@settings(deadline=None)  # the machine may be busy
@given(NAMES, PATHS, PATHS, st.integers(1, 2**22))
def test_every_name_and_path_comes_back_once_the_name_is_known(comm: str, limit: str, below: str, pid: int) -> None:
    cgroup = limit + below if limit != "/" else below
    text = f"{HEAD},oom_memcg={limit},task_memcg={cgroup},task={comm},pid={pid},uid=0"
    assert parse.parse_verdict(text, comm) == Verdict(pid, comm, cgroup, limit, "memcg")
    killed = parse.parse_killed(f"Out of memory: Killed process {pid} ({comm}) total-vm:1kB, anon-rss:2kB")
    assert killed == Killed(pid, comm, "", anon_bytes=2048)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + ",mems_allowed=0,oom_memcg=/" * 300,
        HEAD + ",oom_memcg=/" + ",task_memcg=/" * 600 + ",task=" * 20 + ",pid=1,uid=0",
        "Killed process 1 (" + ") total-vm:1kB" * 600,
        "Task in /" + " killed as a result of limit of /" * 250,
    ],
)
@pytest.mark.parametrize("parser", [parse.parse_verdict, parse.parse_killed, parse.parse_task_in])
def test_the_longest_record_costs_little(parser: Callable[[str], object], text: str) -> None:
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        parser(text[:8192])
        took.append(time.perf_counter() - begin)
    assert min(took) < 0.05
