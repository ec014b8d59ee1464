"""What scripts/build-deb says of what it cannot do, and what it makes."""

import subprocess

import pytest

from deploy.debian import ROOT, packages
from requires import needs

pytestmark = needs("debian")


@pytest.mark.parametrize("version", ["nonsense", "1.2-3", "1.2/../../x", "v1.2"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    done = _build("--version", version)
    assert done.returncode == 1
    assert f"'{version}' is no version" in done.stderr


def test_wrong_usage_is_refused() -> None:
    done = _build("--versoin", "1.2")
    assert done.returncode == 1
    assert done.stderr.startswith("build-deb: usage:")


def test_the_package_says_what_it_takes() -> None:
    made = packages()
    show = ["dpkg-deb", "--field", f"{made.directory}{made.file(made.version).removeprefix('/shared')}"]
    done = subprocess.run(show, capture_output=True, text=True, check=True, timeout=60)
    fields = dict(line.split(": ", 1) for line in done.stdout.splitlines() if not line.startswith(" "))
    assert (fields["Package"], fields["Version"]) == ("oomcast", made.version)
    assert fields["Depends"].startswith("python3 (>= 3.11~), python3 (<< 3.12), ")
    assert fields["Recommends"] == "python3-bpfcc"
    assert "@" not in done.stdout.replace(fields["Maintainer"], "")


def _build(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts/build-deb"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
