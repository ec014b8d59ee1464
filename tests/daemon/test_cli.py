"""The commands of the real program, as a person and as a pipe have them."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.program import OUR_OWN_OFF, command, group_members, oomcast, plugins
from oomcast import __version__
from requires import needs

FINE = {"good": "GOOD", "absent": "ABSENT"}


def with_plugins(tmp_path: Path, specs: Mapping[str, str]) -> tuple[tuple[str, str], dict[str, str]]:
    config = tmp_path / "oomcast.yaml"
    config.write_text(OUR_OWN_OFF)
    return ("--config", str(config)), plugins(tmp_path, specs)


@needs("prometheus")
def test_run_once_is_valid_for_promtool(tmp_path: Path) -> None:
    done = oomcast("run", "--once", environment=plugins(tmp_path, FINE))
    assert done.returncode == 0
    assert re.search(r"^oomcast_trouble_good_total [1-9]\.0$", done.stdout, re.MULTILINE)
    assert re.search(r'^oomcast_collector_up{collector="host"} 1\.0$', done.stdout, re.MULTILINE)
    checked = subprocess.run(
        ("promtool", "check", "metrics"), input=done.stdout, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_run_once_tells_a_failure_with_exit_code_3(tmp_path: Path) -> None:
    config, environment = with_plugins(tmp_path, {**FINE, "hangs": "HANGS", "raises": "RAISES"})
    done = oomcast("run", "--once", *config, environment=environment)
    assert done.returncode == 3
    assert 'oomcast_collector_up{collector="raises"} 0.0\n' in done.stdout
    assert 'oomcast_collector_up{collector="hangs"} 0.0\n' in done.stdout
    assert 'oomcast_collector_up{collector="good"} 1.0\n' in done.stdout
    assert 'oomcast_collector_up{collector="absent"}' not in done.stdout


def test_check_says_what_each_collector_does_or_why_it_does_nothing(tmp_path: Path) -> None:
    config, environment = with_plugins(tmp_path, {**FINE, "hangs": "HANGS", "broken": "BROKEN"})
    done = oomcast("check", *config, environment=environment)
    assert done.returncode == 3
    lines = [re.sub(r"[0-9.]+ ms", "N ms", line) for line in done.stdout.splitlines()]
    assert lines == [
        "settings: ok",
        "listen: 127.0.0.1:19128",
        "cgroup      off      switched off in the settings",
        "ebpf        off      switched off in the settings",
        "engine      off      switched off in the settings",
        "engine_log  off      switched off in the settings",
        "gpu         off      switched off in the settings",
        "host        off      switched off in the settings",
        "kernel_log  off      switched off in the settings",
        "requests    off      switched off in the settings",
        "absent      absent   absent is not there",
        "broken      FAILED   RuntimeError: no such library",
        "good        ok       2 series every 0.5 s, N ms",
        "hangs       FAILED   no result within 2 s; still waiting for it to return",
    ]


def test_check_of_a_machine_that_is_mounted_nowhere(tmp_path: Path) -> None:
    nowhere = {f"OOMCAST_PATHS__{name}": str(tmp_path / "nowhere") for name in ("PROC", "SYS", "DEV", "PODS")}
    done = oomcast("check", environment=nowhere)
    states = dict(line.split()[:2] for line in done.stdout.splitlines()[2:])
    assert set(states) == {"cgroup", "ebpf", "engine", "engine_log", "gpu", "host", "kernel_log", "requests"}
    assert states["cgroup"] == "absent"
    assert states["kernel_log"] == "absent"
    assert states["host"] in ("absent", "FAILED")
    assert str(tmp_path / "nowhere") in done.stdout
    assert done.returncode == (3 if "FAILED" in states.values() else 0)
    assert "Traceback" not in done.stdout


def test_check_of_bad_settings(tmp_path: Path) -> None:
    done = oomcast("check", environment={"OOMCAST_LOG__LEVEL": "loud"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "log.level" in done.stderr
    done = oomcast("check", "--config", str(tmp_path / "none.yaml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_of_the_settings_alone_starts_no_collector(tmp_path: Path) -> None:
    config, environment = with_plugins(tmp_path, {"parent": "PARENT", "hangs": "HANGS"})
    done = oomcast("check", "--settings", *config, environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "settings: ok\n", "")
    assert not (tmp_path / "stopped").exists()
    done = oomcast("check", "--settings", environment={"OOMCAST_LOG__LEVEL": "loud"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "log.level" in done.stderr


@pytest.mark.parametrize("arguments", [("check",), ("run", "--once"), ("snapshot", "--interval", "0")])
def test_no_command_leaves_a_child_of_a_collector_behind(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    config, environment = with_plugins(tmp_path, {"parent": "PARENT", "hangs": "HANGS"})
    done = oomcast(*arguments, *config, environment=environment)
    assert done.returncode == 3
    assert (tmp_path / "stopped").read_text() == "done"
    assert group_members(int((tmp_path / "group").read_text())) == []


def test_snapshot_subtracts(tmp_path: Path) -> None:
    config, environment = with_plugins(tmp_path, {"good": "GOOD", "later_count": "LATER_COUNT"})
    arguments = ("snapshot", *config, "--match", "oomcast_trouble")
    done = oomcast(*arguments, "--interval", "1", "--json", environment=environment)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    (row,) = found["counters"]
    assert row["series"] == "oomcast_trouble_good_total"
    assert row["from"] == 1
    assert row["rise"] == row["to"] - 1
    assert 2 <= row["rise"] <= 4
    assert found["appeared"] == [{"series": "oomcast_trouble_later_total", "to": 7}]
    assert (found["gone"], found["began_anew"]) == ([], [])
    assert 1 <= found["seconds"] < 3


def test_snapshot_with_no_time_between_still_reads_twice(tmp_path: Path) -> None:
    config, environment = with_plugins(tmp_path, {"good": "GOOD"})
    done = oomcast("snapshot", *config, "--match", "trouble_good", "--interval", "0", environment=environment)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"\S+Z to \S+Z, \d\.\d s", lines[0])
    assert re.fullmatch(r" +[12] +\S+  oomcast_trouble_good_total", lines[2])
    assert len(lines) == 3


@pytest.mark.parametrize("interval", ["-1", "nan", "soon", "1e9"])
def test_snapshot_over_no_time_at_all_is_wrong_usage(interval: str) -> None:
    done = oomcast("snapshot", "--interval", interval)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--interval" in done.stderr


def test_metrics_in_three_formats() -> None:
    text, markdown, table = (oomcast("metrics", "--format", form) for form in ("text", "markdown", "json"))
    assert (text.returncode, markdown.returncode, table.returncode) == (0, 0, 0)
    names = [row["name"] for row in json.loads(table.stdout)]
    assert "oomcast_oom_kills_total" in names
    assert len(set(names)) == len(names)
    assert [line.split()[1] for line in text.stdout.splitlines()[1:]] == names
    assert re.findall(r"^\| `(\w+)`", markdown.stdout, re.MULTILINE) == names
    assert oomcast("metrics").stdout == text.stdout


def test_example_is_a_settings_file(tmp_path: Path) -> None:
    done = oomcast("example")
    assert done.returncode == 0
    config = tmp_path / "oomcast.yaml"
    config.write_text(done.stdout)
    assert oomcast("check", "--config", str(config)).stdout.startswith("settings: ok\n")


def test_version_and_help() -> None:
    assert oomcast("--version").stdout == f"oomcast {__version__}\n"
    for arguments in (("--help",), ("run", "--help"), ("snapshot", "-h")):
        done = oomcast(*arguments)
        assert done.returncode == 0
        assert done.stdout.startswith("usage: oomcast")
    assert "exit codes: 0 done, 1 could not start or run, 2 wrong usage or settings" in oomcast("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("fly",), "invalid choice: 'fly'"),
        (("run", "--fast"), "unrecognized arguments: --fast"),
        (("metrics", "--format", "xml"), "invalid choice: 'xml'"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], reason: str) -> None:
    done = oomcast(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


@pytest.mark.parametrize("arguments", [("metrics",), ("example",), ("--help",), ("run", "--once"), ("check",)])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_gets_no_traceback(arguments: tuple[str, ...], unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with os.fdopen(write, "wb") as gone:
        done = subprocess.run(
            command(*arguments),
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("arguments", [("metrics",), ("example",), ("--help",), ("--version",), ("run", "--once")])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_trouble(arguments: tuple[str, ...], closed: str) -> None:
    argv = ("sh", "-c", f'exec "$@" {closed}', "sh", *command(*arguments))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0


def test_a_locale_without_letters_is_no_trouble(tmp_path: Path) -> None:
    config, environment = with_plugins(tmp_path, {"raises": "RAISES"})
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
    done = oomcast("check", *config, environment={**environment, **ascii_only})
    assert done.returncode == 3
    assert "FAILED   ValueError: reading" in done.stdout
    assert "oomcast cannot go on" not in done.stderr
