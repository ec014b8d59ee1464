from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.support import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture
def root(tmp_path: Path) -> trees.Host:
    """A v2 host without any cgroup but its root."""
    return trees.copy("v2-root", tmp_path)


@pytest.fixture
def bench() -> Iterator[MakeBench]:
    """bench(host, **settings): a collector that is stopped after the test."""
    made: list[Bench] = []

    def make(host: trees.Host, *, serving: tuple[str, ...] = (), **settings: object) -> Bench:
        made.append(Bench(host, serving=serving, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()
