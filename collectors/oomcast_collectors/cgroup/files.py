"""A cgroup's files, kept open as long as the descriptors allow."""

import errno
import os
import resource

_RESERVE = 256
"""Descriptors left for the rest of the daemon."""

LARGEST = 65536
"""Bytes read of any file; memory.stat is under 2 KiB on every kernel so far."""

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

    __slots__ = ("_budget", "_fd", "_size", "path")

    def __init__(self, directory: str, name: str, budget: Budget, size: int = 512) -> None:
        self.path = f"{directory}/{name}"
        self._budget = budget
        self._size = size
        self._fd = -1

    @property
    def kept(self) -> bool:
        """Whether the next reading is of the same file, whatever its path leads to by then."""
        return self._fd >= 0

    def read(self) -> bytes:
        """The whole file. Raises OSError, with an errno of GONE when its cgroup was removed."""
        fd = self._fd
        if fd < 0:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            if self._budget.left <= 0:
                try:
                    return self._whole(fd)
                finally:
                    os.close(fd)
            self._budget.left -= 1
            self._fd = fd
        text = os.pread(fd, self._size, 0)
        return text if len(text) < self._size else self._whole(fd)

    def _whole(self, fd: int) -> bytes:
        text = os.pread(fd, LARGEST, 0)
        if len(text) == LARGEST:
            raise OSError(errno.EFBIG, "larger than any such file", self.path)
        self._size = min(max(self._size, len(text) + 512), LARGEST)
        return text

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._budget.left += 1
