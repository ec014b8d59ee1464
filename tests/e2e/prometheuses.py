"""The generations of Prometheus that this machine has: the one on the PATH, and those that scripts/setup unpacked."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from host import cache


class Prometheus(NamedTuple):
    """The programs of one generation. version: of prometheus and promtool ("2.42.0"); Alertmanager has its own."""

    version: str
    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path


PROGRAMS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
"""Their names as Debian has them, in the order of the fields."""


@functools.cache
def found() -> tuple[Prometheus, ...]:
    """Each version once, the oldest first; none where a machine has no Prometheus. Looked up once per process."""
    # The one on the PATH last, so that of two of a version it is the one that counts: the others are for more versions.
    every = {one.version: one for one in [*_unpacked(), *_on_the_path()]}
    return tuple(sorted(every.values(), key=lambda one: [int(part) for part in one.version.split(".")]))


def oldest() -> Prometheus:
    """Raises IndexError where there is none."""
    return found()[0]


def newest() -> Prometheus:
    """Raises IndexError where there is none."""
    return found()[-1]


def on_each(argument: str = "which") -> pytest.MarkDecorator:
    """The mark for a test that gets every version in turn as `argument`; @needs("prometheus") goes with it."""
    return pytest.mark.parametrize(argument, found(), ids=[one.version for one in found()])


def _on_the_path() -> list[Prometheus]:
    paths = [path for name in PROGRAMS if (path := shutil.which(name))]
    if len(paths) < len(PROGRAMS):
        return []
    return [Prometheus(_version(paths[0]), *map(Path, paths))]


def _unpacked() -> list[Prometheus]:
    """scripts/setup has seen them run, and named each directory for the version that it told."""
    directories = (cache() / "prometheus").glob("[0-9]*")
    every = [Prometheus(one.name, *(one / "usr" / "bin" / name for name in PROGRAMS)) for one in directories]
    return [one for one in every if all(os.access(path, os.X_OK) for path in one[1:])]


def _version(prometheus: str) -> str:
    done = subprocess.run([prometheus, "--version"], capture_output=True, text=True, check=True, timeout=60)
    said = re.match(r"prometheus, version (\d+(?:\.\d+)+)", done.stdout + done.stderr)
    if said is None:
        raise ValueError(f"{prometheus} --version tells no version: {done.stdout + done.stderr}")
    return said[1]
