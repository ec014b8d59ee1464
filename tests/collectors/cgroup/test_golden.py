"""Everything that a scrape says about recorded hosts."""

import subprocess
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from conftest import Golden
from requires import needs

HOSTS: tuple[trees.TreeName, ...] = ("v1-docker", "hybrid", "v2-systemd", "v2-k8s", "v2-container", "v2-root")


@pytest.mark.parametrize("tier", ["core", "full"])
@pytest.mark.parametrize("name", HOSTS)
def test_the_whole_text(tmp_path: Path, bench: MakeBench, golden: Golden, name: trees.TreeName, tier: str) -> None:
    full = ("*",) if tier == "full" else ()
    golden(f"cgroup/{name}-{tier}.txt", bench(trees.copy(name, tmp_path), full=full).run().text())


@needs("prometheus")
@pytest.mark.parametrize("name", HOSTS)
def test_promtool_finds_nothing_wrong_with_it(tmp_path: Path, bench: MakeBench, name: trees.TreeName) -> None:
    text = bench(trees.copy(name, tmp_path), full=("*",)).run().text()
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
