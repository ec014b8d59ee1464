"""The unit and its drop-ins as systemd reads them: no complaint, and a reason for each exposure that stays."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from host import cache
from oomcast.core import CORE_METRICS
from oomcast.plugins import find
from oomcast.settings import Http, Settings, load
from requires import needs

CHECKOUT = Path(__file__).parents[2]
SHIPPED = CHECKOUT / "deploy" / "systemd"
NODE_UNITS = cache() / "debian" / "node" / "usr" / "lib" / "systemd" / "system"

# What `systemd-analyze security` says at most, 0 to 10.
SCORES = {"": 2.6, "ebpf-kernel": 2.8, "ebpf-programs": 3.0}
_REASON = re.compile(r"^# stays (\S+): \S", re.MULTILINE)
_COMMENTED_OUT = re.compile(r"^( *)#(?=\S)", re.MULTILINE)


@pytest.fixture(params=SCORES)
def drop_in(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path, drop_in: str) -> Path:
    """A root directory with the unit, the drop-in, and the units of a Debian node."""
    units = tmp_path / "usr" / "lib" / "systemd" / "system"
    shutil.copytree(NODE_UNITS, units, symlinks=True)
    for name in ("usr/bin/oomcast", "bin/kill"):
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(0o755)
    shutil.copy(SHIPPED / "oomcast.service", units)
    for name in filter(None, [drop_in]):
        folder = tmp_path / "etc" / "systemd" / "system" / "oomcast.service.d"
        folder.mkdir(parents=True)
        shutil.copy(SHIPPED / f"{name}.conf", folder)
    return tmp_path


def analyze(root: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = ["systemd-analyze", command, f"--root={root}", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def texts(drop_in: str) -> Sequence[str]:
    names = ["oomcast.service", *([f"{drop_in}.conf"] if drop_in else [])]
    return [(SHIPPED / name).read_text() for name in names]


@needs("debian")
def test_systemd_has_nothing_to_complain_of(root: Path) -> None:
    done = analyze(root, "verify", "--man=no", "--recursive-errors=no", "oomcast.service")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs("debian")
@pytest.mark.parametrize("drop_in", ["ebpf-kernel"], indirect=True)
def test_systemd_would_complain_of_a_drop_in(root: Path) -> None:
    """That is: the drop-in is read, and what is wrong in it is told."""
    (path,) = root.glob("etc/systemd/system/*/*.conf")
    path.write_text(f"{path.read_text()}\nMemoryMaximum=1G\n")
    done = analyze(root, "verify", "--man=no", "--recursive-errors=no", "oomcast.service")
    assert "MemoryMaximum" in done.stderr


@needs("debian")
def test_exposure(root: Path, drop_in: str) -> None:
    done = analyze(root, "security", "--offline=true", f"--threshold={SCORES[drop_in] * 10:.0f}", "oomcast.service")
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


@needs("debian")
def test_each_exposure_has_its_reason_and_each_reason_its_exposure(root: Path, drop_in: str) -> None:
    done = analyze(root, "security", "--offline=true", "--json=short", "oomcast.service")
    assert done.returncode == 0, done.stderr
    exposed = sorted(one["name"] for one in json.loads(done.stdout) if one["exposure"])
    reasons = sorted(name for text in texts(drop_in) for name in _REASON.findall(text))
    assert reasons == exposed
    assert len(exposed) > 10


def test_the_documentation_has_the_table_that_was_measured() -> None:
    """By test_unit_sandbox.py."""
    measured = Path(__file__).with_name("sandbox") / "modes.md"
    assert measured.read_text() in (CHECKOUT / "docs" / "deploy.md").read_text()


def settings(path: Path) -> Settings:
    found = find(CORE_METRICS)
    return load(path, {}, found.specs, found.left_out)


def test_the_shipped_settings_are_the_port_of_everywhere_at_every_address() -> None:
    _, port = Http().address
    assert settings(SHIPPED / "oomcast.yaml").http.listen == f":{port}"


def test_what_the_shipped_settings_suggest_can_be_set(tmp_path: Path) -> None:
    text = (SHIPPED / "oomcast.yaml").read_text()
    all_set = tmp_path / "oomcast.yaml"
    all_set.write_text(_COMMENTED_OUT.sub(r"\1", text))
    plain, suggested = settings(SHIPPED / "oomcast.yaml"), settings(all_set)
    assert suggested.http.web_config == tmp_path / "web.yml"
    changed = {name for name, own in suggested.collectors.items() if own != plain.collectors[name]}
    assert changed == {"requests", "engine_log", "ebpf"}
