"""Writes constraints.txt: the newest versions that serve every Python oomcast runs on.

Resolves for the oldest Python, then checks that the newer ones find a wheel of every version; what only a newer one
needs is added. Names and versions only, so that the file serves whatever index a machine installs from.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
HEADER = f"# Written by `make lock`, for Python {', '.join(PYTHONS)}: what pip installs, and oomcast is tested with.\n"


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = ["pip", *project["build-system"]["requires"], *project["project"]["dependencies"]]
    pins: dict[str, str] = {}
    for python in PYTHONS:
        pins |= resolve(wanted, python, pins)
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    (ROOT / "constraints.txt").write_text(HEADER + "".join(lines))
    return 0


def resolve(wanted: Sequence[str], python: str, pins: dict[str, str]) -> dict[str, str]:
    """Versions by name of what `wanted` and the group deploy, the largest, install, given `pins`.

    Raises CalledProcessError, after pip has said why, where there is no wheel or no solution.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.writelines(f"{name}=={version}\n" for name, version in pins.items())
        constraints.flush()
        options = ["--dry-run", "--ignore-installed", "-qq", "--disable-pip-version-check", "--report=-"]
        target = ["--only-binary=:all:", f"--python-version={python}", f"--constraint={constraints.name}"]
        command = [sys.executable, "-m", "pip", "install", *options, *target, "--group=deploy", *wanted]
        report = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    found = (item["metadata"] for item in json.loads(report)["install"])
    return {re.sub(r"[-_.]+", "-", item["name"].lower()): item["version"] for item in found}


if __name__ == "__main__":
    raise SystemExit(main())
