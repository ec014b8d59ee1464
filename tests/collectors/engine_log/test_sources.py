"""Which files are followed."""

import logging
import os
from pathlib import Path

import pytest

from oomcast_collectors.engine_log.settings import LogFiles
from oomcast_collectors.engine_log.sources import MAX_FILES, Sources

LOG = logging.getLogger("engine_log")


def of_files(*paths: Path) -> Sources:
    return Sources([LogFiles(engine="a", paths=tuple(map(str, paths)))], None, (), LOG)


def names(sources: Sources) -> list[str]:
    return [one.path.name for one in sources.wanted().values()]


def test_a_pattern_leaves_predecessors_alone_and_a_name_is_a_name(tmp_path: Path) -> None:
    kept = ["a.log", "vllm-0", "worker.1234", "b-8000.log"]
    predecessors = ["a.log.1", "a.log.2.gz", "a.log.xz", "a.log-20261129", "a.log-20261129.gz", "a.2026-11-29", "a.old"]
    for name in (*kept, *predecessors, "a.log.20261129-164410"):
        (tmp_path / name).touch()
    assert names(of_files(tmp_path / "*")) == sorted(kept)
    assert names(of_files(tmp_path / "a.log.1", tmp_path / "absent")) == ["a.log.1", "absent"]


def test_a_name_is_fit_to_be_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"a\xff\n.log")).touch()
    assert [one.fields["file"] for one in of_files(tmp_path / "*").wanted().values()] == ["a\\udcff?.log"]


def test_there_is_a_limit_that_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MAX_FILES + 5):
        (tmp_path / f"{number:03}.log").touch()
    sources = of_files(tmp_path / "*.log", tmp_path / "000.log")
    assert len(sources.wanted()) == len(sources.wanted()) == MAX_FILES
    assert caplog.messages == ["more than 256 log files: the rest is not followed"]


def pod(root: Path, directory: str, *logs: str) -> None:
    for log in logs:
        path = root / directory / log
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_containers_by_their_name_or_their_pods(tmp_path: Path) -> None:
    pod(tmp_path, "ml_chat-0_0f3a", "vllm/0.log", "vllm/10.log", "vllm/9.log", "vllm/9.log.20261129.gz", "proxy/0.log")
    pod(tmp_path, "ml_sglang-big_77", "server/0.log")
    pod(tmp_path, "strange", "vllm/0.log")
    pod(tmp_path, "ml_A_1", "vllm/0.log")
    pod(tmp_path, "ml_x_2", "VLLM/0.log", "vllm/none", "vllm2/x.log")
    (tmp_path / "ml_y_3").touch()
    sources = Sources((), tmp_path, ("*vllm*", "sglang*"), LOG)
    wanted = sources.wanted().values()
    assert [(str(one.path.relative_to(tmp_path)), one.engine) for one in wanted] == [
        ("ml_chat-0_0f3a/vllm/10.log", "vllm"),
        ("ml_sglang-big_77/server/0.log", "server"),
    ]
    assert [dict(one.fields) for one in wanted] == [
        {"file": "10.log", "namespace": "ml", "pod": "chat-0", "container": "vllm"},
        {"file": "0.log", "namespace": "ml", "pod": "sglang-big", "container": "server"},
    ]


def test_no_pods_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Sources((), tmp_path / "absent", ("*",), LOG).wanted() == {}
    assert caplog.messages == []
