"""A cgroup's files, kept open as long as the descriptors allow."""

import errno
import os
import resource
from collections.abc import Sequence
from operator import ge

_RESERVE = 256
"""Descriptors left for the rest of the daemon."""

LARGEST = 65536
"""Bytes read of any file; memory.stat is under 2 KiB on every kernel so far."""

_BEGINNINGS = (0,) * 16
"""Offsets for as many files as are ever read together."""

GONE = (errno.ENODEV, errno.ENOENT, errno.ENOTDIR)
"""ENODEV: read through an open descriptor of a removed cgroup, for ever, even once the path exists again."""

UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)
"""The file opens and cannot be read: PSI that is compiled in but off, deprecated parts of v1."""


class Budget:
    """How many descriptors may be kept. Raises the soft limit to the hard one first: a few per cgroup add up."""

    def __init__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (OSError, ValueError):
                pass  # the soft limit it is: what does not fit is opened for each reading
        self.left = max(soft - _RESERVE, 0)


class File:
    """One file of one cgroup. Kept open (2.7 times cheaper to read) while the budget lasts, else opened each time."""

    __slots__ = ("_budget", "_directory", "_name", "fd", "size")

    def __init__(self, directory: str, name: str, budget: Budget, size: int = 512) -> None:
        # Joined when needed: thousands of cgroups have four of these each, and the two parts exist anyway.
        self._directory = directory
        self._name = name
        self._budget = budget
        self.size = size
        """Bytes asked for at once; a text that long is read again, as it may go on."""
        self.fd = -1
        """Below 0 while it is not kept open. The next reading of one that is kept is of the same file, whatever its
        path leads to by then."""

    @property
    def path(self) -> str:
        return f"{self._directory}/{self._name}"

    def read(self) -> bytes:
        """The whole file. Raises OSError, with an errno of GONE when its cgroup was removed."""
        fd = self.fd
        if fd < 0:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            if self._budget.left <= 0:
                try:
                    return self._whole(fd)
                finally:
                    os.close(fd)
            self._budget.left -= 1
            self.fd = fd
        text = os.pread(fd, self.size, 0)
        return text if len(text) < self.size else self._whole(fd)

    def _whole(self, fd: int) -> bytes:
        text = os.pread(fd, LARGEST, 0)
        if len(text) == LARGEST:
            raise OSError(errno.EFBIG, "larger than any such file", self.path)
        self.size = min(max(self.size, len(text) + 512), LARGEST)
        return text

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self._budget.left += 1


def read_kept(fds: Sequence[int], sizes: Sequence[int]) -> list[bytes] | None:
    """The texts of files that are all kept open, in a third of the time of reading one by one. None where one cannot
    be read so: it is gone, is empty, or fills its size and may go on."""
    try:
        texts = list(map(os.pread, fds, sizes, _BEGINNINGS))
    except OSError:
        return None
    lengths = list(map(len, texts))
    return texts if all(lengths) and not any(map(ge, lengths, sizes)) else None
