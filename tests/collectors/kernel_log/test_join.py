"""The lines of one kill, put together; and what is asked of /proc when some are missing."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

from oomcast_collectors.kernel_log.join import OomJoiner, OomKill
from oomcast_collectors.kernel_log.victim import victim_cgroup
from oomcast_collectors.membership import memory_cgroup

SECOND = 1_000_000
INVOKED = "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"


def verdict(pid: int, cgroup: str, limit: str) -> str:
    return (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"oom_memcg={limit},task_memcg={cgroup},task=hog,pid={pid},uid=0"
    )


def killed(pid: int, prefix: str = "Memory cgroup out of memory: ") -> str:
    return f"{prefix}Killed process {pid} (hog) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB"


def group(path: str) -> str:
    return f"Tasks in {path} are going to be killed due to memory.oom.group set"


class Joined:
    """A joiner over a /proc that knows `cgroups` by pid; `kills` as (pid, cgroup, limit, constraint, repeated)."""

    def __init__(self, cgroups: dict[int, str] | None = None) -> None:
        self.joiner = OomJoiner(lambda pid, comm: (cgroups or {}).get(pid, ""))
        self.usec = 0

    def kills(self, *lines: str, step: int = 10) -> list[tuple[int, str, str, str, bool]]:
        found: list[OomKill] = []
        for line in lines:
            self.usec += step
            if (kill := self.joiner.feed(line, self.usec)) is not None:
                found.append(kill)
        return [(k.killed.pid, k.cgroup, k.limit_cgroup, k.constraint, k.repeated) for k in found]


def test_a_verdict_names_the_kill_of_its_pid_only() -> None:
    assert Joined().kills(INVOKED, verdict(7, "/b/a", "/b"), killed(7), killed(8)) == [
        (7, "/b/a", "/b", "memcg", False),
        (8, "", "", "memcg", False),
    ]


def test_a_path_that_looks_like_the_next_oom_is_a_path() -> None:
    path = "/x invoked oom-killer: y"
    assert Joined().kills(verdict(7, path, path), killed(7)) == [(7, path, path, "memcg", False)]


def test_a_verdict_is_used_once_and_not_for_another_pid() -> None:
    assert Joined().kills(verdict(7, "/a", "/a"), killed(8), killed(7)) == [
        (8, "", "", "memcg", False),
        (7, "", "", "memcg", False),
    ]


def test_a_verdict_does_not_wait_for_ever() -> None:
    assert Joined().kills(verdict(7, "/a", "/a"), killed(7), step=31 * SECOND) == [(7, "", "", "memcg", False)]


def test_a_kill_without_a_verdict_is_looked_up() -> None:
    assert Joined({9: "/x"}).kills(killed(9, "Out of memory: ")) == [(9, "/x", "", "", False)]


def test_before_5_0_the_announcement_and_the_kill_count_once() -> None:
    lines = (
        "Task in /b/a killed as a result of limit of /b",
        "Memory cgroup out of memory: Kill process 7 (hog) score 900 or sacrifice child",
        killed(8, ""),
        "oom_reaper: reaped process 8 (hog), now anon-rss:0kB, file-rss:0kB, shmem-rss:0lB",
        "Memory cgroup out of memory: Kill process 9 (hog) score 900 or sacrifice child",
        killed(9, ""),
        killed(10, ""),
    )
    assert Joined().kills(*lines) == [
        (8, "/b/a", "/b", "memcg", False),
        (9, "", "", "memcg", False),
        (10, "", "", "", False),
    ]


def test_a_group_lends_its_path_to_its_members_and_its_first_is_not_repeated() -> None:
    lines = (verdict(7, "/b/g/x", "/b"), killed(7), group("/b/g"), killed(8), killed(7), killed(9))
    assert Joined({9: "/b/g/y"}).kills(*lines) == [
        (7, "/b/g/x", "/b", "memcg", False),
        (8, "/b/g", "/b", "memcg", False),
        (7, "/b/g/x", "/b", "memcg", True),
        (9, "/b/g/y", "/b", "memcg", False),
    ]


def test_a_group_ends_with_the_next_oom_with_a_member_elsewhere_and_with_time() -> None:
    begin = (verdict(7, "/g", "/g"), killed(7), group("/g"))
    assert Joined().kills(*begin, INVOKED, killed(8))[1] == (8, "", "", "memcg", False)
    assert Joined({8: "/other"}).kills(*begin, killed(8), killed(9))[1:] == [
        (8, "/other", "", "memcg", False),
        (9, "", "", "memcg", False),
    ]
    late = Joined()
    late.kills(*begin)
    late.usec += 6 * SECOND
    assert late.kills(killed(8)) == [(8, "", "", "memcg", False)]


def test_a_gap_ends_what_was_announced() -> None:
    joined = Joined()
    joined.kills(verdict(7, "/g", "/g"), killed(7), group("/g"))
    joined.joiner.reset()
    assert joined.kills(killed(7)) == [(7, "", "", "memcg", False)]


def make_process(
    proc: Path, pid: int, *, cgroup: str = "0::/a\n", pending: str = "0", state: str = "S 1 1 1 0 -1 4194304"
) -> None:
    directory = proc / str(pid)
    directory.mkdir()
    (directory / "cgroup").write_text(cgroup)
    (directory / "comm").write_text("my (job)\n")
    (directory / "status").write_text(f"Name:\tmy\nSigPnd:\t{pending:0>16}\nShdPnd:\t{0:016x}\n")
    (directory / "stat").write_text(f"{pid} (my (job)) {state} 0 0\n")


def test_only_a_dying_process_of_that_name_is_believed(tmp_path: Path) -> None:
    make_process(tmp_path, 1)
    make_process(tmp_path, 2, pending="100")
    make_process(tmp_path, 3, state="R 1 1 1 0 -1 4194308")
    make_process(tmp_path, 4, state="Z 1 1 1 0 -1 0")
    make_process(tmp_path, 5, pending="100", cgroup="0::/\n")
    make_process(tmp_path, 6, pending="100", cgroup="0::/../../b\n")
    make_process(tmp_path, 7, pending="400")
    make_process(tmp_path, 8, state="")
    found = {pid: victim_cgroup(tmp_path, pid, "my (job)") for pid in range(1, 10)}
    assert found == {1: "", 2: "/a", 3: "/a", 4: "/a", 5: "", 6: "", 7: "", 8: "", 9: ""}
    assert victim_cgroup(tmp_path, 2, "job") == ""


def test_real_processes_alive_and_dead(eventually: Callable[[Callable[[], bool]], None]) -> None:
    proc = Path("/proc")
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=PIPE, stdout=PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it has its own name by now
        comm = (proc / str(child.pid) / "comm").read_text().removesuffix("\n")
        assert victim_cgroup(proc, child.pid, comm) == ""
        child.kill()
        eventually(lambda: " Z " in (proc / str(child.pid) / "stat").read_text())
        # Version 2 keeps the dead in their cgroup, version 1 moves them to the root, and that is no answer.
        kept = memory_cgroup((proc / str(child.pid) / "cgroup").read_bytes())
        assert victim_cgroup(proc, child.pid, comm) == ("" if kept == "/" or kept.startswith("/..") else kept)
    finally:
        child.kill()
        child.communicate()
