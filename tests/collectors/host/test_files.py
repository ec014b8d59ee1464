import errno
import os
from pathlib import Path

import pytest

from oomcast_collectors.host.files import KeptFile, read_once


def test_reads_from_the_start_each_time_and_keeps_the_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\n" * 10_000)
    file = KeptFile(path)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, no paths
    assert file.read() == b"one\n" * 10_000
    path.write_bytes(b"two\n")
    assert file.read() == b"two\n"
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208 - a count, no paths
    del file
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - a count, no paths


def test_a_file_of_the_kernel_in_pieces_is_whole() -> None:
    # The kernel hands out a page of it per read.
    data = KeptFile(Path("/proc/zoneinfo")).read()
    assert len(data) > 4096
    with open("/proc/zoneinfo", "rb") as file:  # noqa: PTH123 - its own way of reading
        assert [line.split()[0] for line in data.splitlines()] == [line.split()[0] for line in file]


def test_too_large_is_an_error_and_not_a_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(OSError, match="more than 1048576 bytes") as caught:
        KeptFile(path).read()
    assert caught.value.errno == errno.EFBIG
    path.write_bytes(b"x" * (1 << 20))
    assert len(KeptFile(path).read()) == 1 << 20


def test_a_file_comes_and_a_read_that_failed_opens_it_anew(tmp_path: Path) -> None:
    file = KeptFile(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        file.read()
    (tmp_path / "file").write_bytes(b"now\n")
    assert file.read() == b"now\n"


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="Illegal seek"):
        KeptFile(tmp_path / "fifo").read()
    assert read_once(str(tmp_path / "fifo"), 100) == b""


def test_read_once_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert len(read_once(str(tmp_path / "file"), 70_000)) == 70_000
    assert len(read_once(str(tmp_path / "file"), 200_000)) == 100_000
