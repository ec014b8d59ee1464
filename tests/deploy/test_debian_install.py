"""What the package puts on a machine, and how the daemon runs there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.debian import ROOT, SETTINGS, URL, dpkg, metrics, packages, runs, status
from deploy.node import Machine, node
from requires import needs

pytestmark = needs("debian")
SITE = "/usr/lib/oomcast/lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def installed() -> Iterator[Machine]:
    """A machine on which the package has been installed with nobody there, and an ordinary user, alice."""
    made = packages()
    with node(made.directory) as files, files.boot() as machine:
        machine.said("useradd", "--create-home", "alice")
        done = dpkg(machine, "--install", made.file(made.version))
        assert done.returncode == 0, done.stderr
        yield machine


def test_the_user_cannot_log_in(installed: Machine) -> None:
    name, password, uid, gid, _, home, shell = installed.said("getent", "passwd", "oomcast").strip().split(":")
    assert (name, password, shell) == ("oomcast", "x", "/usr/sbin/nologin")
    assert 0 < int(uid) < 1000
    assert home == "/"
    assert installed.said("getent", "group", gid).startswith("oomcast:x:")
    assert installed.said("getent", "shadow", "oomcast").split(":")[1].startswith(("!", "*"))


def test_the_daemon_runs_now_and_at_the_next_boot(installed: Machine) -> None:
    assert status(installed) == f"installed {packages().version}"
    assert installed.said("systemctl", "is-active", "oomcast") == "active\n"
    assert installed.said("systemctl", "is-enabled", "oomcast") == "enabled\n"


def test_another_machine_reads_its_metrics(installed: Machine) -> None:
    assert runs(installed, packages().version)
    assert re.search(r"^oomcast_host_memory_total_bytes \S+$", metrics(installed), re.M)
    assert installed.fetch(f"{URL}/-/ready").status == 200


def test_an_ordinary_user_runs_the_program(installed: Machine) -> None:
    said = installed.said("oomcast", "check", "--config", SETTINGS, user="alice").splitlines()
    assert said[:2] == ["settings: ok", "listen: :19128"]
    states = {line.split()[0]: line.split()[1] for line in said[2:]}
    assert states["host"] == states["cgroup"] == "ok"
    assert "FAILED" not in states.values()
    assert installed.said("oomcast", "--version", user="alice") == f"oomcast {packages().version}\n"


def test_all_is_owned_by_root_and_written_by_nobody_else(installed: Machine) -> None:
    listed = [path for path in installed.said("dpkg", "--listfiles", "oomcast").splitlines() if path != "/."]
    assert len(listed) > 1000
    lines = installed.said("xargs", "-d", "\\n", "stat", "--format=%U:%G %a %F", given="\n".join(listed)).splitlines()
    wrong = [
        path
        for path, line in zip(listed, lines, strict=True)
        if not line.startswith("root:root ") or (int(line.split()[1], 8) & 0o022 and "symbolic link" not in line)
    ]
    assert wrong == []
    # The same asked the other way round, of the kernel: what is there that the daemon's user could write?
    search = 'find /etc /usr /lib/systemd /var/lib/dpkg -path /etc/ssl/private -prune -o -not -type l "$@" -print'
    assert installed.said("sh", "-c", search, "sh", "-writable", user="oomcast") == ""
    assert installed.said("sh", "-c", search, "sh", "(", "-user", "oomcast", "-o", "-group", "oomcast", ")") == ""


def test_nothing_is_compiled_or_written_where_it_lies(installed: Machine) -> None:
    # As root, who could: the daemon's user could not anyway.
    installed.said("oomcast", "check", "--config", SETTINGS)
    installed.said("oomcast", "rules")
    listed = set(installed.said("dpkg", "--listfiles", "oomcast").splitlines())
    assert set(installed.said("find", "/usr/lib/oomcast").splitlines()) - listed == set()
    # One module for which that would show: without its byte code it takes some to write.
    assert f"{SITE}/oomcast/__pycache__/cli.cpython-311.pyc" in listed


def test_only_what_runs_is_in_it(installed: Machine) -> None:
    listed = installed.said("dpkg", "--listfiles", "oomcast").splitlines()
    below = [path.removeprefix(f"{SITE}/") for path in listed if path.startswith(f"{SITE}/")]
    assert [
        path for path in below if re.search(r"(^|/)(pip|setuptools|pytest|tests?)(/|-|$)|\.pyi$|/RECORD$", path)
    ] == []
    assert [path for path in listed if path.startswith("/usr/lib/oomcast/bin/")] == [
        f"/usr/lib/oomcast/bin/{name}" for name in ("oomcast", "python", "python3")
    ]
    size = int(installed.said("dpkg-query", "--show", "--showformat=${Installed-Size}", "oomcast"))
    assert size < 35_000, "more than 35 MB: what came in?"
    assert "probes/crashes.c" in "\n".join(below)


def test_versions_are_those_that_are_tested(installed: Machine) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    script = "from importlib.metadata import distributions\nfor one in distributions(): print(one.name, one.version)"
    found = installed.said("/usr/lib/oomcast/bin/python3", "-I", "-c", script).splitlines()
    versions = {name.lower().replace("_", "-"): version for name, version in map(str.split, found)}
    assert versions.pop("oomcast") == packages().version
    assert "pydantic" in versions
    assert versions == {name: pinned[name] for name in versions}


def test_it_finds_the_bcc_of_the_distribution(installed: Machine) -> None:
    # What the child of the collector does first; the rest takes a kernel, which this machine has no sight of.
    script = (
        "import sys; from oomcast_collectors.ebpf.machine import find\n"
        "folder = find(); print(folder); sys.path.append(str(folder.parent))\n"
        "import bcc; print(bcc.__file__)"
    )
    said = installed.said("/usr/lib/oomcast/bin/python3", "-I", "-c", script).splitlines()
    assert said == ["/usr/lib/python3/dist-packages/bcc", "/usr/lib/python3/dist-packages/bcc/__init__.py"]


def test_what_it_comes_with_is_what_is_here(installed: Machine) -> None:
    same = {
        "/lib/systemd/system/oomcast.service": "deploy/systemd/oomcast.service",
        "/usr/share/oomcast/systemd/ebpf-programs.conf": "deploy/systemd/ebpf-programs.conf",
        "/usr/share/oomcast/alerts/oomcast.rules.yml": "alerts/oomcast.rules.yml",
        "/usr/share/oomcast/grafana/dashboards/oomcast-fleet.json": "grafana/dashboards/oomcast-fleet.json",
        "/usr/share/doc/oomcast/oomcast.example.yaml": "docs/oomcast.example.yaml",
        "/usr/share/doc/oomcast/runbooks/OomcastCrash.md": "alerts/runbooks/OomcastCrash.md",
        SETTINGS: "deploy/systemd/oomcast.yaml",
    }
    for path, ours in same.items():
        assert installed.said("cat", path) == (ROOT / ours).read_text(), path


def test_every_place_that_its_files_name_is_there(installed: Machine) -> None:
    texts = [*Path(ROOT, "deploy/systemd").iterdir(), ROOT / "deploy/debian/oomcast.1"]
    named = {
        path for text in texts for path in re.findall(r"/usr/(?:share|lib)/[\w./-]*oomcast[\w./-]*", text.read_text())
    }
    assert "/usr/share/oomcast" in named
    for path in (path.rstrip(".") for path in named):
        assert installed.run("test", "-e", path).returncode == 0, path


def test_the_manual_names_every_command(installed: Machine) -> None:
    manual = installed.said("zcat", "/usr/share/man/man1/oomcast.1.gz")
    commands = re.findall(r"^    (\w+) ", installed.said("oomcast", "--help"), re.M)
    assert len(commands) > 5
    assert sorted(commands) == sorted(set(re.findall(r"^\.It Cm (\w+)$", manual, re.M)))
