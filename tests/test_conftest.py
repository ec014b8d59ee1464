"""The skip logic and the golden fixture, each seen from outside: a pytest of its own over a small suite."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMMANDS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
WANTS_PROMETHEUS = "from requires import needs\n\n@needs('prometheus')\ndef test_one():\n    pass\n"


@dataclass(frozen=True)
class Suite:
    root: Path
    commands: Path

    def run(self, test: str, *options: str, **environ: str) -> tuple[int, list[str]]:
        """Exit status and non-blank output lines of pytest over `test`, with only `commands` on the PATH."""
        (self.root / "test_it.py").write_text(test)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-ra", "--color=no", "-p", "no:cacheprovider", *options],
            cwd=self.root,
            env={"PATH": str(self.commands), "COLUMNS": "200", **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == "" or done.returncode == pytest.ExitCode.USAGE_ERROR
        return done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    for name in ("conftest.py", "requires.py", "host.py"):
        shutil.copy(HERE / name, tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib --strict-markers\npythonpath = .\n"
    )
    (tmp_path / "bin").mkdir()
    return Suite(tmp_path, tmp_path / "bin")


def test_what_is_missing_skips_and_is_listed(suite: Suite) -> None:
    status, lines = suite.run(WANTS_PROMETHEUS)
    assert status == pytest.ExitCode.OK
    title = next(n for n, line in enumerate(lines) if " what this host could not do " in line)
    missing = f"prometheus: not on the PATH: {', '.join(COMMANDS)} (1 test skipped)"
    assert lines[title + 1] == missing
    assert " 1 skipped in " in lines[-1]


def test_what_is_missing_fails_where_it_is_required(suite: Suite) -> None:
    status, lines = suite.run(WANTS_PROMETHEUS, OOMCAST_REQUIRE="cgroup, prometheus")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert f"OOMCAST_REQUIRE lists prometheus, but: not on the PATH: {', '.join(COMMANDS)}" in lines
    assert " 1 error in " in lines[-1]


def test_what_is_there_runs(suite: Suite) -> None:
    for name in COMMANDS:
        (suite.commands / name).touch(mode=0o755)
    status, lines = suite.run(WANTS_PROMETHEUS, OOMCAST_REQUIRE="prometheus")
    assert status == pytest.ExitCode.OK
    assert " 1 passed in " in lines[-1]
    assert not any("could not do" in line for line in lines)


def test_a_test_that_finds_out_half_way(suite: Suite) -> None:
    status, lines = suite.run("from requires import require\n\ndef test_one():\n    require('engines')\n")
    assert status == pytest.ExitCode.OK
    assert "engines: no inference engine: scripts/setup engines has not made .venv-engines (1 test skipped)" in lines


def test_an_unknown_name_is_an_error(suite: Suite) -> None:
    known = "known are: cgroup, kmsg, prometheus, ebpf, vm, engines, pictures, cc, rustc, netns, helm, debian, buildah"
    status, lines = suite.run(WANTS_PROMETHEUS, OOMCAST_REQUIRE="cgruop")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert lines[-1] == f"ERROR: unknown requirement 'cgruop', {known}"
    status, lines = suite.run("from requires import needs\n\n@needs('moon')\ndef test_one():\n    pass\n")
    assert status == pytest.ExitCode.INTERRUPTED
    assert f"E   ValueError: unknown requirement 'moon', {known}" in lines


def test_a_golden_file_is_compared_and_rewritten(suite: Suite) -> None:
    def test(text: str) -> str:
        return f"def test_one(golden):\n    golden('deep/a.txt', {text!r})\n"

    path = suite.root / "golden" / "deep" / "a.txt"
    status, lines = suite.run(test("one\ntwo\n"))
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "tests/golden/deep/a.txt does not exist: pytest --update-golden writes it" in lines
    assert not path.exists()

    assert suite.run(test("one\ntwo\n"), "--update-golden")[0] == pytest.ExitCode.OK
    assert path.read_bytes() == b"one\ntwo\n"
    assert suite.run(test("one\ntwo\n"))[0] == pytest.ExitCode.OK

    status, lines = suite.run(test("one\nthree"))
    assert status == pytest.ExitCode.TESTS_FAILED
    head = lines.index("tests/golden/deep/a.txt differs: if that is meant, pytest --update-golden rewrites it")
    assert lines[head + 1 : head + 7] == [
        "--- tests/golden/deep/a.txt",
        "+++ what the test got",
        "@@ -1,2 +1,2 @@",
        " one",
        "-two",
        "+three  (no newline at the end)",
    ]
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_golden_file_of_a_running_program_is_waited_for(suite: Suite) -> None:
    def test(*texts: str) -> str:
        return f"def test_one(golden):\n    golden.becomes('a.txt', iter({texts!r}).__next__, patience={patience})\n"

    patience = 30.0
    (suite.root / "golden").mkdir()
    (suite.root / "golden" / "a.txt").write_text("one\ntwo\n")
    assert suite.run(test("", "one\n", "one\ntwo\n"))[0] == pytest.ExitCode.OK
    patience = 0.0
    status, lines = suite.run(test("one\n"))
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "-two" in lines


def test_a_cgroup_takes_root() -> None:
    script = "import os, requires; os.geteuid() or os.seteuid(65534); print(requires.missing('cgroup'))"
    done = subprocess.run([sys.executable, "-c", script], cwd=HERE, capture_output=True, text=True, check=True)
    assert done.stdout == "making cgroups takes root\n"
