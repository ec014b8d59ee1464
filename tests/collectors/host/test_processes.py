import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.host.trees import write_process
from oomcast.contract import Roots
from oomcast_collectors.host import processes
from oomcast_collectors.host.files import read_once
from oomcast_collectors.host.processes import (
    Found,
    ProcessFinder,
    cgroup_components,
    label_of,
    parse_stat,
)
from oomcast_collectors.membership import memory_cgroup


def finder(proc: Path, *patterns: str, units: tuple[str, ...] = ()) -> ProcessFinder:
    return ProcessFinder(Roots(proc=proc), patterns, units)


def names(found: list[Found]) -> dict[int, str]:
    return {f.pid: f.name for f in found}


def test_matches_comm_program_script_and_module_in_any_case(tmp_path: Path) -> None:
    write_process(tmp_path, 1, "systemd", ("/sbin/init",))
    write_process(tmp_path, 10, "VLLM::EngineCor", ("VLLM::EngineCore",))
    write_process(tmp_path, 11, "python3", ("/usr/bin/python3", "-m", "vllm.entrypoints.api_server"))
    write_process(tmp_path, 12, "python3", ("/usr/bin/python3", "/usr/bin/vllm", "serve"))
    write_process(tmp_path, 13, "text-generation", ("/opt/text-generation-launcher",))
    write_process(tmp_path, 14, "tail", ("tail", "-f", "/var/log/vllm.log"))
    found = finder(tmp_path, "vllm*", "Text-Generation-Launcher").find()
    assert names(found) == {10: "vllm", 11: "vllm", 12: "vllm", 13: "Text-Generation-Launcher"}
    assert found[0] == Found(10, 100, "vllm", "/system.slice/x.service")


def test_kernel_threads_are_no_processes(tmp_path: Path) -> None:
    write_process(tmp_path, 2, "vllm", flags=0x200040)
    assert finder(tmp_path, "*").find() == []


def test_units_by_their_cgroup(tmp_path: Path) -> None:
    write_process(tmp_path, 5, "a", ("a",), cgroup="0::/system.slice/ollama.service/child\n")
    write_process(tmp_path, 6, "b", ("b",), cgroup="4:memory:/other\n1:name=systemd:/system.slice/tgi.scope\n")
    write_process(tmp_path, 7, "c", ("c",), cgroup="4:memory:/ollama.service\n1:name=systemd:/x\n")
    found = finder(tmp_path, units=("ollama", "tgi.scope")).find()
    assert [(f.pid, f.name, f.cgroup_path) for f in found] == [
        (5, "ollama.service", "/system.slice/ollama.service/child"),
        (6, "tgi.scope", "/other"),
    ]


def test_a_name_without_a_pattern_of_its_own_is_the_processes(tmp_path: Path) -> None:
    write_process(tmp_path, 5, b'\xff"\\\n{}) S 1', ("x",))
    write_process(tmp_path, 6, "", ("y",))
    assert names(finder(tmp_path, "*").find()) == {5: '\\xff"\\\n{}) S 1', 6: "*"}
    assert [label_of(p) for p in ("vllm*", "*llama*server*", "x?", "**")] == ["vllm", "llama*server", "x?", ""]


def test_command_lines_are_read_once_and_again_more_rarely(tmp_path: Path) -> None:
    write_process(tmp_path, 4, "python", ("python", "-m", "other"))
    find = finder(tmp_path, "vllm").find
    assert find() == []
    # The same comm and start time, so only a second look at the command line can tell: exec of the same program.
    write_process(tmp_path, 4, "python", ("python", "-m", "vllm"))
    seen = [bool(find()) for _ in range(4)]
    assert seen == [True] * 4


def looks(proc: Path, pid: int, scans: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The scans that read the command line. Not told by its access time: file systems may not keep that."""
    read: list[str] = []

    def noted(path: str, limit: int) -> bytes:
        read.append(path)
        return read_once(path, limit)

    monkeypatch.setattr(processes, "read_once", noted)
    find = finder(proc, "vllm").find
    found = []
    for scan in range(scans):
        read.clear()
        find()
        found += [scan] * read.count(f"{proc}/{pid}/cmdline")
    return found


def test_a_young_process_is_looked_at_again_soon_and_an_old_one_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uptime").write_text("1000.00 2000.00\n")
    ticks = os.sysconf("SC_CLK_TCK")
    write_process(tmp_path, 8, "python", ("python", "-m", "other"), start=990 * ticks)
    write_process(tmp_path, 9, "python", ("python", "-m", "other"), start=10 * ticks)
    assert looks(tmp_path, 8, 200, monkeypatch) == [0, 1, 3, 7, 15, 39, 79, 119, 159, 199]
    assert looks(tmp_path, 9, 200, monkeypatch) == [0, 41, 82, 123, 164]


def test_a_reused_pid_is_judged_anew(tmp_path: Path) -> None:
    write_process(tmp_path, 4, "vllm", start=100)
    find = finder(tmp_path, "vllm").find
    assert [f.start_time for f in find()] == [100]
    shutil.rmtree(tmp_path / "4")
    write_process(tmp_path, 4, "bash", ("bash",), start=900)
    assert find() == []
    shutil.rmtree(tmp_path / "4")
    write_process(tmp_path, 4, "vllm", start=1200)
    found = [f.start_time for _ in range(3) for f in find()]
    assert found[-1] == 1200


@pytest.mark.parametrize("missing", ["stat", "cmdline", "cgroup"])
def test_a_process_that_vanishes_meanwhile(tmp_path: Path, missing: str) -> None:
    write_process(tmp_path, 3, "python", ("python", "-m", "vllm"))
    write_process(tmp_path, 4, "python", ("python", "-m", "vllm"))
    (tmp_path / "4" / missing).unlink()
    expected = {3: "/system.slice/x.service"} | ({4: ""} if missing == "cgroup" else {})
    assert {f.pid: f.cgroup_path for f in finder(tmp_path, "vllm").find()} == expected


def test_garbage_beside_processes(tmp_path: Path) -> None:
    write_process(tmp_path, 3, "vllm")
    for name in ("self", "sys", "²", "12x"):
        (tmp_path / name).mkdir()
    (tmp_path / "7").write_text("not a folder")
    write_process(tmp_path, 8, "vllm")
    (tmp_path / "8/stat").write_bytes(b"\x00\xff garbage")
    find = finder(tmp_path, "vllm").find
    assert names(find()) == {3: "vllm"}
    assert names(find()) == {3: "vllm"}


def test_proc_that_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        finder(tmp_path / "none", "vllm").find()


@pytest.mark.parametrize(
    "stat",
    [
        b"",
        b"1 (x)",
        b"1 (x) S 1 1 1 0 -1 x 5 6 7 8 9 10 11 12 20 0 1 0 100 3 3\n",
        b"1 (x) S 1 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 -1 3 3\n",
        b"1 )x( S 1 1 1 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 100 3 3\n",
        b"1 (x) S 1 1 1 0 -1 4 5 6 " + b"7" * 5000 + b" 8 9 10 11 12 20 0 1 0 100 3 3\n",
    ],
)
def test_malformed_stat(stat: bytes) -> None:
    assert parse_stat(stat) is None


def test_cgroups_of_either_version() -> None:
    hybrid = b"9:name=systemd:/a/b.service\n4:cpu,memory:/m:x\n0::/u\n"
    assert cgroup_components(hybrid) == {"", "a", "b.service", "u"}


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    script = tmp_path / "OomcastTestEngine.py"
    script.write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    process = subprocess.Popen([sys.executable, "-u", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_real_process_comes_and_goes(child: "subprocess.Popen[bytes]") -> None:
    find = finder(Path("/proc"), "oomcasttestengine").find
    [found] = find()
    start = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    own = memory_cgroup(Path("/proc/self/cgroup").read_bytes())
    assert found == Found(child.pid, start, "oomcasttestengine", own)
    assert find() == [found]
    child.kill()
    child.wait()
    assert find() == []


def test_a_real_process_that_changes_its_name() -> None:
    code = "import sys\nprint(flush=True)\nsys.stdin.readline()\nopen('/proc/self/comm','wb').write(b'\\xfe oom) R')\n"
    code += "print(flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        find = finder(Path("/proc"), "*xfe oom) R").find
        assert process.pid not in names(find())
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        find()
        # Its second look came with one of these two scans.
        assert names(find())[process.pid] == "xfe oom) R"
        process.kill()
