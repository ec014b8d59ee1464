"""Fixtures of the tests of engine_log."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.engine_log.support import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "pods")
    yield made
    made.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """eventually(condition): waits until it holds, ten seconds at most."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "did not happen within ten seconds"
            time.sleep(0.005)

    return wait
