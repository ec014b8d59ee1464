"""The Debian package that the tests install: built once for what it is made of, and the same as another version."""

import functools
import hashlib
import py_compile
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from deploy.node import ADDRESS, Machine, Node, node
from host import cache

ROOT = Path(__file__).parents[2]
SETTINGS = "/etc/oomcast/oomcast.yaml"
URL = f"http://{ADDRESS}:19128"
DPKG = ("dpkg", "--force-unsafe-io")
"""A machine that is thrown away need not outlive a power failure."""

_MADE_OF = (
    *("daemon", "collectors", "alerts", "docs", "grafana/dashboards", "grafana/provisioning"),
    *("deploy/debian", "deploy/prometheus", "deploy/systemd", "deploy/web-config.example.yml"),
    *("scripts/build-deb", "constraints.txt", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"),
)
_KEPT_SECONDS = 3600.0


class Packages(NamedTuple):
    """Versions of the package, each a file in `directory`. changed: like newer, but it comes with other settings."""

    directory: Path
    version: str
    newer: str
    changed: str

    def file(self, version: str) -> str:
        """Its path in a machine that has the directory as /shared."""
        return f"/shared/oomcast_{version}_amd64.deb"


@functools.cache
def packages() -> Packages:
    """Built by scripts/build-deb, unless that was done already for the same files. Raises CalledProcessError."""
    version = re.findall(r'__version__ = "(.*)"', (ROOT / "daemon/oomcast/__init__.py").read_text())[0]
    newer, changed = f"{version}.post1", f"{version}.post2"
    home = cache() / "package"
    made = home / _digest()
    if not made.exists():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix=".making-") as temporary:
            result = Path(temporary, "result")
            subprocess.run([ROOT / "scripts/build-deb", "--output", result], check=True, timeout=600)
            old = result / f"oomcast_{version}_amd64.deb"
            repack(old, version, newer)
            repack(old, version, changed, _with_other_settings)
            _put(result, made)
        _forget(home, made)
    return Packages(made, version, newer, changed)


def repack(package: Path, version: str, wanted: str, change: Callable[[Path], None] = lambda tree: None) -> None:
    """The package as another version, beside it. change: changes its files, too."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary)
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True, timeout=120)
        _replace(tree / "DEBIAN/control", f"\nVersion: {version}\n", f"\nVersion: {wanted}\n")
        (site,) = tree.glob("usr/lib/oomcast/lib/python3.*/site-packages")
        module = site / "oomcast/__init__.py"
        _replace(module, f'"{version}"', f'"{wanted}"')
        (compiled,) = (site / "oomcast/__pycache__").glob("__init__.*.pyc")
        py_compile.compile(
            str(module), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True
        )
        change(tree)
        target = package.with_name(package.name.replace(version, wanted))
        pack = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(target)]
        subprocess.run(pack, check=True, timeout=120, stdout=subprocess.DEVNULL)


@contextmanager
def installed() -> Iterator[Node]:
    """The files of a machine with the older version on it, which systemd has not started yet; removed afterwards."""
    made = packages()
    with node(made.directory) as files:
        done = files.chroot(*DPKG, "--install", made.file(made.version))
        assert done.returncode == 0, done.stderr
        yield files


def dpkg(machine: Machine, *arguments: str) -> subprocess.CompletedProcess[str]:
    return machine.run(*DPKG, *arguments)


def metrics(machine: Machine) -> str:
    answer = machine.fetch(f"{URL}/metrics")
    assert answer.status == 200
    return answer.text


def value(text: str, series: str) -> float | None:
    """That of the one series whose name and labels are these; None where there is none."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


def runs(machine: Machine, version: str) -> bool:
    """Whether the daemon that answers is of this version."""
    return bool(re.search(rf'^oomcast_build_info{{.*version="{re.escape(version)}"}} 1\.0$', metrics(machine), re.M))


def main_pid(machine: Machine) -> int:
    """0 where the daemon does not run."""
    return int(machine.said("systemctl", "show", "--property=MainPID", "--value", "oomcast.service"))


def status(machine: Machine) -> str:
    """What dpkg thinks of the package."""
    done = machine.run("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}", "oomcast")
    return done.stdout or "not known"


def _with_other_settings(tree: Path) -> None:
    _replace(tree / SETTINGS.lstrip("/"), "\nhttp:\n", "\n# As of a later version.\nhttp:\n")


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} has not one {old!r}"
    path.write_text(text.replace(old, new))


def _digest() -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for name in _MADE_OF:
        place = ROOT / name
        for path in [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file()):
            if "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)} {path.stat().st_mode & 0o111:o}\n".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _put(result: Path, made: Path) -> None:
    try:
        result.rename(made)
    except OSError:
        # Another run of the tests was faster.
        if not made.exists():
            raise


def _forget(home: Path, made: Path) -> None:
    for other in home.iterdir():
        if other != made and time.time() - other.stat().st_mtime > _KEPT_SECONDS:  # noqa: TID251 - of a file's time
            shutil.rmtree(other, ignore_errors=True)
