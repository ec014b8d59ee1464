"""What tests of anything that fetches have: servers on loopback, and fetchers that are closed."""

from collections.abc import Iterator
from typing import Any

import pytest

from oomcast_collectors.fetch import Fetcher
from web_servers import Serve, servers


@pytest.fixture
def serve() -> Iterator[Serve]:
    with servers() as start:
        yield start


@pytest.fixture
def make() -> Iterator[type[Fetcher]]:
    """Makes a `Fetcher`, of its arguments."""
    made: list[Fetcher] = []

    class Made(Fetcher):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            made.append(self)

    yield Made
    for fetcher in made:
        fetcher.close()
