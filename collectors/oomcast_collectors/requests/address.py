"""A Unix datagram socket at a path, bound without harm to whoever else is there."""

import contextlib
import errno
import grp
import os
import socket
import stat
from pathlib import Path


class AddressError(Exception):
    """The path cannot be had; the text says why."""


class Address:
    """Owns the socket, and its file as long as nobody has replaced it. status: the file's."""

    def __init__(self, bound: socket.socket, path: Path, status: os.stat_result) -> None:
        self.socket = bound
        self._path = path
        self._status = status

    def is_ours(self) -> bool:
        """Whether the path still leads to this socket."""
        try:
            return os.path.samestat(os.lstat(self._path), self._status)
        except OSError:
            return False

    def admit(self, mode: int, gid: int) -> None:
        """Sets the file's mode, and its group unless that is -1. Raises OSError."""
        # By descriptor, so that whoever may write to the directory cannot slip another file in between.
        fd = os.open(self._path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not os.path.samestat(os.fstat(fd), self._status):
                raise FileExistsError(errno.EEXIST, "it was replaced just now")
            own = Path(f"/proc/self/fd/{fd}")
            os.chown(own, -1, gid)
            own.chmod(mode)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Removes the file and closes the socket."""
        # In this order: while the socket is open, no other file can get the number of its inode.
        if self.is_ours():
            with contextlib.suppress(OSError):  # gone just now, or the directory forbids it: the next one replaces it
                self._path.unlink()
        self.socket.close()


def bind(path: Path, mode: int, group: str | None) -> Address:
    """A socket that is told who sends, with a file of this mode and group. A file that a dead process has left is
    replaced; raises AddressError where anything else is there, or the file cannot be made."""
    gid = -1 if group is None else _gid(group)
    address = _bound(path)
    try:
        address.admit(mode, gid)
    except OSError as error:
        address.close()
        raise AddressError(f"{path}: its mode and group cannot be set: {error.strerror}") from error
    return address


def _bound(path: Path) -> Address:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        # Before anybody can find it: a message that was sent without its sender's name gets none later.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        os.fchmod(made.fileno(), 0o600)  # the mode that the file begins with
        _clear(path)
        made.bind(str(path))
        return Address(made, path, os.lstat(path))
    except OSError as error:
        made.close()
        reason = f"{path.parent} does not exist" if isinstance(error, FileNotFoundError) else error.strerror
        raise AddressError(f"{path}: {reason or error}") from error
    except AddressError:
        made.close()
        raise


def _gid(group: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise AddressError(f"there is no group {group}") from None


def _clear(path: Path) -> None:
    """Removes a socket that nobody holds any more."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressError(f"{path}: is there, and no socket; it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno != errno.ECONNREFUSED:
                raise AddressError(f"{path}: whose socket it is cannot be told: {error.strerror}") from error
            path.unlink(missing_ok=True)
            return
    raise AddressError(f"{path}: another process receives there; a daemon that runs?")
