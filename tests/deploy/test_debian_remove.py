"""What is left of the package when it has gone, and what it does where no systemd runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.debian import DPKG, SETTINGS, dpkg, installed, packages, status
from deploy.node import Machine, Node, node
from requires import needs

pytestmark = needs("debian")

# Each file with its kind, mode, owner and size, but for what the kernel shows; and what identifies the content of those
# in /etc. Sizes of directories depend on what was in them, and a terminal's login notes when the network changes.
_SNAPSHOT = r"""
find / -xdev -type d -printf '%p %y %m %u:%g\n' -o -printf '%p %y %m %u:%g %s %l\n'
find /run /tmp /dev/shm -not -name agetty.reload -printf '%p %y %m %u:%g\n'
find /etc -type f -exec sha256sum {} +
getent passwd; getent group; getent shadow
systemctl list-unit-files --no-legend; systemctl --failed --no-legend
"""

LEFT = {
    r"^/var/lib/dpkg/status-old ": "dpkg's list of packages as it was before the last change",
    r"^/var/log/dpkg\.log ": "dpkg's log of what it did",
    r"[ /]etc/(passwd|shadow|group|gshadow)-( |$)": "the account files as they were before the last change",
}
"""What may differ, as patterns of lines of the snapshot, with the reason."""


@pytest.fixture
def image() -> Iterator[Node]:
    with installed() as files:
        yield files


def test_removed_it_keeps_settings_and_purged_it_leaves_nothing() -> None:
    with node(packages().directory) as files, files.boot() as machine:
        before = _snapshot(machine)
        assert dpkg(machine, "--install", packages().file(packages().version)).returncode == 0
        assert len(_snapshot(machine) - before) > 1000
        _use(machine)

        removed = dpkg(machine, "--remove", "oomcast")
        assert removed.returncode == 0, removed.stderr
        assert removed.stderr == ""
        assert status(machine).startswith("config-files ")
        assert machine.run("pgrep", "--full", "/usr/bin/oomcast").stdout == ""
        assert machine.said("ls", "/etc/oomcast") == "oomcast.yaml\nweb.yml\n"
        assert machine.run("test", "-e", "/usr/lib/oomcast").returncode == 1
        assert "# mine" in machine.said("cat", SETTINGS)

        again = dpkg(machine, "--install", packages().file(packages().version))
        assert again.returncode == 0, again.stderr
        assert "# mine" in machine.said("cat", SETTINGS)
        assert machine.said("systemctl", "is-active", "oomcast") == "active\n"
        assert machine.said("systemctl", "is-enabled", "oomcast") == "enabled\n"

        purged = dpkg(machine, "--purge", "oomcast")
        assert purged.returncode == 0, purged.stderr
        assert purged.stderr == ""
        assert status(machine) == "not known"
        after = _snapshot(machine)
    # Not even what is allowed to differ, if it bears the name.
    assert [line for line in after if "oomcast" in line and "/shared" not in line] == []
    differences = before ^ after
    assert sorted(line for line in differences if not any(re.search(pattern, line) for pattern in LEFT)) == []
    # One that explains nothing would hide something one day.
    assert [pattern for pattern in LEFT if not any(re.search(pattern, line) for line in differences)] == []


def test_drop_ins_of_the_administrator_stay(image: Node) -> None:
    own = "/etc/systemd/system/oomcast.service.d/own.conf"
    write = f"mkdir {Path(own).parent}; echo '[Service]' >{own}; {' '.join(DPKG)} --purge oomcast; cat {own}"
    done = image.chroot("sh", "-euc", write)
    assert done.stdout.endswith("\n[Service]\n"), done.stderr


def test_without_a_systemd_that_runs_it_is_installed_and_purged(image: Node) -> None:
    wants = "/etc/systemd/system/multi-user.target.wants/oomcast.service"
    shown = image.chroot(
        "sh", "-euc", f"readlink {wants}; getent passwd oomcast; oomcast --version"
    ).stdout.splitlines()
    assert shown[0] == "/lib/systemd/system/oomcast.service"
    assert shown[1].startswith("oomcast:x:")
    assert shown[2] == f"oomcast {packages().version}"
    # Settings that come later, with the machine, are no business of whoever makes its image.
    upgrade = f"echo 'http: [' >{SETTINGS}; {' '.join(DPKG)} --install {packages().file(packages().newer)}"
    done = image.chroot("sh", "-euc", f"{upgrade}; {' '.join(DPKG)} --purge oomcast")
    assert done.returncode == 0, done.stderr
    search = "find /etc /usr /var /lib/systemd -name '*oomcast*'; getent passwd oomcast; getent group oomcast; echo end"
    assert image.chroot("sh", "-c", search).stdout == "end\n"


def _use(machine: Machine) -> None:
    """What leaves something behind, if anything does: changed settings, a drop-in, a restart, a reload, commands."""
    sockets = "/^collectors:$/a\\  requests: {socket: /run/oomcast/requests.sock}"
    machine.said("sed", "-i", "-e", sockets, "-e", "$a# mine", SETTINGS)
    machine.write("/etc/oomcast/web.yml", "basic_auth_users: {}\n")
    link = "/etc/systemd/system/oomcast.service.d/ebpf-kernel.conf"
    machine.said("mkdir", link.rpartition("/")[0])
    machine.said("ln", "-s", "/usr/share/oomcast/systemd/ebpf-kernel.conf", link)
    machine.said("systemctl", "daemon-reload")
    machine.said("systemctl", "restart", "oomcast")
    machine.said("systemctl", "reload", "oomcast")
    machine.said("oomcast", "check")
    assert machine.said("stat", "--format=%F", "/run/oomcast/requests.sock") == "socket\n"


def _snapshot(machine: Machine) -> set[str]:
    return set(machine.said("sh", "-c", _SNAPSHOT).splitlines())
