"""python -m simulator, as a process."""

import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.stack import fetch

DEMO = Path(__file__).parents[2] / "demo"
FIRST = '{"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]}\n'
LATE = FIRST.replace('"timestamp": 0', '"timestamp": 3600000')


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress((FIRST + LATE).encode()))
    return path


@contextmanager
def simulator(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "simulator", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(DEMO)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def told(*arguments: str) -> tuple[int, str]:
    """The exit code and what it says, of one that ends by itself."""
    with simulator(*arguments) as process:
        _, text = process.communicate(timeout=60)
        return process.returncode, text


def test_it_serves_until_it_is_told_to_end(trace: Path) -> None:
    with simulator(str(trace), "--port=0", "--model=mine") as process:
        assert process.stderr
        url = process.stderr.readline().split()[1].rstrip(",")
        assert 'model_name="mine"' in fetch(url)
        process.terminate()
        assert process.wait(10) == 0


def test_it_ends_with_the_trace(trace: Path) -> None:
    code, text = told(str(trace), "--port=0", "--speed=1e6")
    assert code == 0
    assert text.endswith(", 2 requests\n")


def test_a_trace_that_cannot_be_read_is_told(trace: Path, tmp_path: Path) -> None:
    trace.write_bytes(gzip.compress(f"{FIRST}nonsense\n".encode()))
    code, text = told(str(trace), "--port=0")
    assert (code, text.startswith(f"simulator: {trace}:2: ")) == (1, True)
    assert told(str(tmp_path / "none"), "--port=0")[0] == 1


@pytest.mark.parametrize("option", ["--blocks=10", "--speed=0", "--speed=fast", "--max-queue=-1"])
def test_an_engine_that_cannot_be_is_told(trace: Path, option: str) -> None:
    code, text = told(str(trace), option)
    assert code == 2
    assert "usage:" in text
