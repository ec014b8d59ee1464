"""What tests of the lab have: a folder on a disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path_on_disk() -> Iterator[Path]:
    """/tmp is memory on many machines, and what is in memory cannot be read from a disk again."""
    with tempfile.TemporaryDirectory(prefix="oomcast-", dir="/var/tmp") as path:
        yield Path(path)
