"""Binding a path where anything may already be."""

import grp
import os
import pwd
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from oomcast_collectors.requests.address import Address, AddressError, _bound, bind

root = pytest.mark.skipif(os.geteuid() != 0, reason="giving files away takes root")


@contextmanager
def bound(path: Path, mode: int = 0o660, group: str | None = None) -> Iterator[Address]:
    with closing(bind(path, mode, group)) as address:
        yield address


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def reaches(path: Path, address: Address) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"hello", str(path))
    return address.socket.recv(10, socket.MSG_DONTWAIT) == b"hello"


def leave_behind(path: Path, kind: socket.SocketKind = socket.SOCK_DGRAM) -> None:
    """What a killed process leaves."""
    with socket.socket(socket.AF_UNIX, kind) as dead:
        dead.bind(str(path))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("mode", [0o660, 0o600, 0o622])
def test_the_mode_is_the_settings_whatever_the_umask(tmp_path: Path, mode: int, umask: int) -> None:
    path = tmp_path / "socket"
    before = os.umask(umask)
    try:
        with bound(path, mode) as address:
            assert stat.S_IMODE(path.stat().st_mode) == mode
            assert reaches(path, address)
    finally:
        os.umask(before)


def test_nobody_else_can_send_before_the_mode_is_set(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with closing(_bound(tmp_path / "socket")):
            assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600
    finally:
        os.umask(before)


@root
def test_the_group(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    group = grp.getgrgid(pwd.getpwnam("nobody").pw_gid)
    with bound(path, group=group.gr_name):
        assert path.stat().st_gid == group.gr_gid


def test_an_unknown_group_costs_nothing_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    leave_behind(path)
    with pytest.raises(AddressError, match="there is no group no-such-group"):
        bind(path, 0o660, "no-such-group")
    assert path.is_socket()


def test_it_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    before = descriptors()
    with bound(path) as address:
        assert address.is_ours()
    assert not path.exists()
    assert descriptors() == before


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_what_a_dead_process_left_is_replaced(tmp_path: Path, kind: socket.SocketKind) -> None:
    path = tmp_path / "socket"
    leave_behind(path, kind)
    with bound(path) as address:
        assert reaches(path, address)


def test_a_living_receiver_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with bound(path) as living:
        before = descriptors()
        with pytest.raises(AddressError, match="another process receives there"):
            bind(path, 0o660, None)
        assert descriptors() == before
        assert living.is_ours()
        assert reaches(path, living)


@pytest.mark.parametrize("listening", [True, False])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_living_socket_of_another_kind_is_left_alone(
    tmp_path: Path, kind: socket.SocketKind, listening: bool
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(path))
        if listening:
            other.listen()
        with pytest.raises(AddressError, match="whose socket it is cannot be told"):
            bind(path, 0o660, None)
        assert path.is_socket()


def test_a_receiver_that_talks_to_another_one_is_alive(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with bound(tmp_path / "peer"), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        other.connect(str(tmp_path / "peer"))
        with pytest.raises(AddressError, match="cannot be told"):
            bind(path, 0o660, None)
        assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "directory", "fifo", "link", "dangling"])
def test_any_other_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "socket"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        if kind == "link":
            leave_behind(tmp_path / "target")
        path.symlink_to(tmp_path / "target")
    before, fds = path.lstat(), descriptors()
    with pytest.raises(AddressError, match="is there, and no socket; it is left alone"):
        bind(path, 0o660, None)
    assert path.lstat() == before
    assert descriptors() == fds


def test_the_directory_has_to_be_there(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "socket"
    before = descriptors()
    with pytest.raises(AddressError, match=f"{path}: {path.parent} does not exist"):
        bind(path, 0o660, None)
    (tmp_path / "absent").write_text("a file")
    with pytest.raises(AddressError, match="Not a directory"):
        bind(path, 0o660, None)
    assert descriptors() == before


def test_a_successors_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    first = bind(path, 0o660, None)
    path.unlink()
    with bound(path) as second:
        assert not first.is_ours()
        first.close()
        assert second.is_ours()
        assert reaches(path, second)


def test_a_file_that_was_slipped_in_is_not_opened_to_others(tmp_path: Path) -> None:
    path, victim = tmp_path / "socket", tmp_path / "victim"
    victim.write_text("secret")
    victim.chmod(0o600)
    with bound(path) as address:
        path.unlink()
        path.symlink_to(victim)
        with pytest.raises(OSError, match="replaced"):
            address.admit(0o666, -1)
        path.unlink()
        victim.rename(path)
        with pytest.raises(OSError, match="replaced"):
            address.admit(0o666, -1)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "secret"
