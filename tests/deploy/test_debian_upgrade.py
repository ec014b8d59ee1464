"""A package over another one: settings stay, the daemon is the new one, what goes wrong is said and can be mended."""

import re
import time
from collections.abc import Callable, Iterator

import pytest

from cgroups import Cgroup
from deploy.debian import DPKG, SETTINGS, dpkg, installed, main_pid, metrics, packages, runs, status, value
from deploy.node import Machine, Node, node
from requires import needs

pytestmark = needs("debian")
CREATED = 'oomcast_oom_kills_created{limit_owner="/victim",owner="/victim"}'
PATIENCE = 60.0


@pytest.fixture(scope="module")
def image() -> Iterator[Node]:
    """Files of a machine with the older version on them."""
    with installed() as files:
        yield files


@pytest.fixture
def copy(image: Node) -> Iterator[Node]:
    with node(packages().directory, image) as files:
        yield files


@pytest.fixture
def machine(copy: Node) -> Iterator[Machine]:
    """One on which the older version runs."""
    with copy.boot() as running:
        assert main_pid(running) != 0
        yield running


@needs("cgroup")
def test_an_upgrade_keeps_settings_and_begins_to_count_anew(machine: Machine) -> None:
    _edit(machine, "\ncollectors:\n", "\nlog: {level: debug}\ncollectors:\n")
    victim = machine.memory.child("victim")
    victim.limit(16 << 20)
    _until(lambda: _kills(metrics(machine)) == 0)
    _kill_one(victim)
    _until(lambda: _kills(metrics(machine)) == 1)
    before, pid, mine = metrics(machine), main_pid(machine), machine.said("cat", SETTINGS)

    done = dpkg(machine, "--install", packages().file(packages().newer))

    assert done.returncode == 0, done.stderr
    assert status(machine) == f"installed {packages().newer}"
    assert machine.said("cat", SETTINGS) == mine
    assert machine.said("ls", "/etc/oomcast") == "oomcast.yaml\n"
    assert main_pid(machine) not in (0, pid)
    _until(lambda: _kills(metrics(machine)) is not None)
    after = metrics(machine)
    assert runs(machine, packages().newer)
    # A counter that falls, and a later time at which it began: a reset, as Prometheus knows it.
    assert _kills(after) == 0
    for series in (CREATED, "process_start_time_seconds"):
        assert (value(after, series) or 0) > (value(before, series) or 0) > 0, series
    assert "NaN" not in before + after
    # The kernel's own counts go on. The next kill is counted from there, and the one before is not told again.
    assert value(after, 'oomcast_cgroup_oom_kills_total{cgroup="/victim",scope="own"}') == 1
    _kill_one(victim)
    _until(lambda: _kills(metrics(machine)) == 1)
    victim.remove()


def test_settings_that_both_sides_changed_are_the_administrator_s(copy: Node) -> None:
    made = packages()
    # What unattended upgrades ask for. Without it dpkg asks who is there, as for each file in /etc.
    steps = f"echo '# mine' >>{SETTINGS}; {' '.join(DPKG)} --force-confold --install {made.file(made.changed)}"
    done = copy.chroot("sh", "-euc", f"{steps}; tail -n 1 {SETTINGS}; sed -n 1,/^http/p {SETTINGS}.dpkg-dist")
    assert done.returncode == 0, done.stderr
    assert "\n# mine\n" in done.stdout
    assert "\n# As of a later version.\n" in done.stdout


def test_settings_that_nobody_changed_are_replaced(copy: Node) -> None:
    done = copy.chroot(*DPKG, "--install", packages().file(packages().changed))
    assert done.returncode == 0, done.stderr
    shown = copy.chroot("sh", "-c", "cat /etc/oomcast/*; ls /etc/oomcast").stdout
    assert "\n# As of a later version.\n" in shown
    assert shown.endswith("\noomcast.yaml\n")


def test_settings_that_are_refused_stop_the_upgrade_and_not_the_daemon(machine: Machine) -> None:
    pid = main_pid(machine)
    good = machine.said("cat", SETTINGS)
    _edit(machine, "\ncollectors:\n", "\ncolectors:\n")
    line = machine.said("grep", "-n", "colectors", SETTINGS).partition(":")[0]

    done = dpkg(machine, "--install", packages().file(packages().newer))

    assert done.returncode == 1
    assert f"{SETTINGS}:{line}:" in done.stderr
    assert "collectors" in done.stderr, "the nearest known key is named"
    assert "dpkg --configure oomcast" in done.stderr
    assert "Traceback" not in done.stderr
    assert status(machine) == f"half-configured {packages().newer}"
    assert main_pid(machine) == pid
    assert runs(machine, packages().version)

    # The same again, as long as nothing is mended; then it is as if nothing had been.
    assert dpkg(machine, "--configure", "--pending").returncode == 1
    machine.write(SETTINGS, good)
    mended = dpkg(machine, "--configure", "--pending")
    assert mended.returncode == 0, mended.stderr
    assert status(machine) == f"installed {packages().newer}"
    assert main_pid(machine) not in (0, pid)
    assert runs(machine, packages().newer)


def test_a_package_that_could_not_be_configured_can_go(machine: Machine) -> None:
    machine.write(SETTINGS, "http: [\n")
    assert dpkg(machine, "--install", packages().file(packages().newer)).returncode == 1
    pid = main_pid(machine)
    done = dpkg(machine, "--purge", "oomcast")
    assert done.returncode == 0, done.stderr
    assert status(machine) == "not known"
    assert pid != 0
    assert machine.run("test", "-e", f"/proc/{pid}").returncode == 1


def test_a_daemon_that_cannot_start_is_said(machine: Machine) -> None:
    machine.said("systemctl", "stop", "oomcast")
    squat = "import socket, time; s = socket.create_server(('', 19128)); print('here', flush=True); time.sleep(600)"
    machine.said("systemd-run", "--unit=squatter", "--quiet", "python3", "-c", squat)
    _until(lambda: "here" in machine.said("journalctl", "--unit=squatter", "--output=cat"))
    done = dpkg(machine, "--install", packages().file(packages().newer))
    assert done.returncode == 1
    assert "the daemon does not start" in done.stderr
    assert "in use" in done.stderr, "the reason, from its log"
    machine.said("systemctl", "stop", "squatter")
    mended = dpkg(machine, "--configure", "oomcast")
    assert mended.returncode == 0, mended.stderr
    assert runs(machine, packages().newer)


def test_an_older_version_and_the_same_again_can_be_installed(machine: Machine) -> None:
    made = packages()
    _edit(machine, "\ncollectors:\n", "\nlog: {level: debug}\ncollectors:\n")
    mine = machine.said("cat", SETTINGS)
    for version in (made.newer, made.newer, made.version):
        pid = main_pid(machine)
        done = dpkg(machine, "--install", made.file(version))
        assert done.returncode == 0, done.stderr
        assert main_pid(machine) not in (0, pid)
        assert runs(machine, version)
        assert machine.said("cat", SETTINGS) == mine


def test_a_daemon_that_was_switched_off_stays_off(machine: Machine) -> None:
    machine.said("systemctl", "disable", "--now", "oomcast")
    # Nobody waits for it, so its settings are nobody's trouble either.
    machine.write(SETTINGS, "http: [\n")
    done = dpkg(machine, "--install", packages().file(packages().newer))
    assert done.returncode == 0, done.stderr
    assert main_pid(machine) == 0
    assert machine.run("systemctl", "is-enabled", "oomcast").stdout == "disabled\n"


def _edit(machine: Machine, old: str, new: str) -> None:
    text = machine.said("cat", SETTINGS)
    assert text.count(old) == 1
    machine.write(SETTINGS, text.replace(old, new))


def _kill_one(victim: Cgroup) -> None:
    """The kernel kills a process there that takes more and more memory."""
    with victim.run("tail", "/dev/zero") as hog:
        assert hog.wait(60) == -9


def _kills(text: str) -> float | None:
    """Kills in that cgroup. What limit they hit is not known where the kernel's log cannot be read."""
    found = re.findall(r'^oomcast_oom_kills_total{(?:.*,)?owner="/victim"} (\S+)$', text, re.M)
    return sum(map(float, found)) if found else None


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)
