"""What docs/lengths.md says of the published traces is what the fit says of them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts" / "fit_traces.py"
    spec = importlib.util.spec_from_file_location("fit_traces", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look their module up.
    sys.modules["fit_traces"] = module
    spec.loader.exec_module(module)
    return module


def test_the_table_is_what_the_script_computes(script: ModuleType) -> None:
    page = (ROOT / "docs" / "lengths.md").read_text()
    assert script.replaced(page, script.section()) == page


def test_a_page_without_the_markers_is_not_written(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="no section between"):
        script.replaced("# Lengths\n", "")


def test_a_picture_is_the_same_when_drawn_again(script: ModuleType, tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        script.draw(script.ALL[0], tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"log-normal" in (ROOT / "docs" / "pictures" / "lengths-azure.svg").read_bytes()


def test_the_buckets_are_those_of_vllm(script: ModuleType) -> None:
    from collectors.engine.prompts import VLLM

    assert tuple(script.buckets(131_072)) == VLLM


def test_the_verdicts_of_the_page(script: ModuleType) -> None:
    """The prose says so too."""
    assert {trace.name: script.fitted(trace).holds for trace in script.ALL} == {
        "azure": False,
        "mooncake": True,
        "synthetic": False,
    }
