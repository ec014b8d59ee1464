"""The configs of tests/fixtures/configs."""

from pathlib import Path
from typing import Any

from oomcast.kv.config import read
from oomcast.kv.fields import load
from oomcast.kv.memory import Memory, memory
from oomcast.kv.serving import Serving

CONFIGS = Path(__file__).parents[2] / "fixtures" / "configs"
NAMES = tuple(sorted(path.stem for path in CONFIGS.glob("*.json")))


def config(name: str, **changes: Any) -> dict[str, Any]:
    """The object in the file, with some fields another."""
    return {**load(CONFIGS / f"{name}.json"), **changes}


def of(name: str, **serving: Any) -> Memory:
    return memory(read(config(name)), Serving(**serving))
