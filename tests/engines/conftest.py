"""The model that the engines serve."""

from pathlib import Path

import pytest

from engines.model import write_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny"))
