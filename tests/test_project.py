"""What the project's own files promise: pinned versions that name no index, and a check that sees a secret."""

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SECRETS = ROOT / "scripts" / "secrets"
NAME = re.compile(r"[A-Za-z0-9._-]+")


def normalised(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_every_dependency_is_pinned_and_no_index_is_named() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines[0].startswith("# Written by `make lock`")
    assert [line for line in lines[1:] if not re.fullmatch(r"[a-z0-9-]+==[0-9][a-z0-9.]*", line)] == []

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"].values()
    wanted = {normalised(item) for group in groups for item in group if isinstance(item, str)}
    wanted |= {normalised(item) for item in project["project"]["dependencies"] + project["build-system"]["requires"]}
    assert wanted - {line.partition("==")[0] for line in lines[1:]} == set()


def test_the_engine_of_the_tests_is_pinned_and_brings_no_cuda() -> None:
    lines = (ROOT / "engines-constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert [pin for pin in pins.items() if not re.fullmatch(r"[a-z0-9-]+ [0-9][a-z0-9.]*(\+cpu)?", " ".join(pin))] == []
    assert pins["torch"].endswith("+cpu")
    assert [name for name in pins if name.startswith(("nvidia", "cuda", "torchvision", "torchaudio"))] == []


def test_a_new_secret_fails_the_check(tmp_path: Path) -> None:
    planted = tmp_path / "settings.py"

    def check(text: str) -> tuple[int, list[str]]:
        planted.write_text(text)
        done = subprocess.run([SECRETS, str(planted)], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("Secret Type")]

    key = "AKIA" + "QYLPMN5HHHFPZAM2"
    assert check('region = "eu-west-1"\n') == (0, [])
    assert check(f'key = "{key}"\n') == (1, ["Secret Type: AWS Access Key"])
    assert check(f'key = "{key}"  # pragma: allowlist secret\n') == (0, [])
