"""The programs measured beside ours, fetched into a cache directory. One that cannot be had is printed as such."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_CGROUPS_EXPORTER = ("cgroups-exporter==0.8.8", "argclass==1.0.3")  # it does not start with a newer argclass
_NVITOP_EXPORTER = ("nvitop-exporter==1.7.2", "nvitop==1.7.2")
_PATIENCE = 300


class Missing(Exception):
    """The peer cannot be had on this machine; the text says why."""


def cgroups_exporter() -> Path:
    """The interpreter of a virtual environment of its own with PyPI's cgroups-exporter. Raises Missing."""
    return _installed("cgroups-exporter-0.8.8", "cgroups-exporter", _CGROUPS_EXPORTER).with_name("python")


def nvitop_exporter() -> Path:
    """PyPI's nvitop-exporter, in a virtual environment of its own. Raises Missing."""
    return _installed("nvitop-exporter-1.7.2", "nvitop-exporter", _NVITOP_EXPORTER)


def node_exporter() -> Path:
    """The program of Debian's prometheus-node-exporter, unpacked and not installed. Raises Missing."""
    for name in ("prometheus-node-exporter", "node_exporter"):
        installed = shutil.which(name)
        if installed:
            return Path(installed)
    return _unpacked("prometheus-node-exporter", "usr/bin/prometheus-node-exporter")


def memleak() -> Path:
    """BCC's memleak, of Debian's bpfcc-tools, unpacked and not installed. Raises Missing."""
    installed = shutil.which("memleak-bpfcc")
    return Path(installed) if installed else _unpacked("bpfcc-tools", "usr/sbin/memleak-bpfcc")


def _unpacked(package: str, program: str) -> Path:
    home = _cache() / package
    if not (home / program).exists():
        home.mkdir(parents=True, exist_ok=True)
        _run("apt-get", "download", package, directory=home)
        files = list(home.glob("*.deb"))
        if not files:
            raise Missing("apt-get downloaded no package")
        _run("dpkg-deb", "-x", str(files[0]), str(home))
    return home / program


def _installed(directory: str, program: str, packages: Sequence[str]) -> Path:
    home = _cache() / directory
    installed = home / "bin" / program
    if not installed.exists():
        shutil.rmtree(home, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(home))
        _run(str(home / "bin" / "python"), "-m", "pip", "-q", "--disable-pip-version-check", "install", *packages)
    return installed


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oomcast-bench"


def _run(*argv: str, directory: Path | None = None) -> None:
    try:
        subprocess.run(argv, cwd=directory, check=True, capture_output=True, text=True, timeout=_PATIENCE)
    except FileNotFoundError as error:
        raise Missing(f"there is no {error.filename}") from error
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{argv[0]} took more than {_PATIENCE} s") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:]
        raise Missing(f"{Path(argv[0]).name}: {''.join(last) or f'exit code {error.returncode}'}") from error
