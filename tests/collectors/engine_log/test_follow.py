"""One path through everything that happens to log files; nothing written before a rotation is lost."""

import logging
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import FakeClock
from oomcast_collectors.engine_log.follow import MAX_BACKLOG, Followed
from oomcast_collectors.engine_log.lines import Tally


class Log:
    """A followed path, and the text that came of it."""

    def __init__(self, path: Path, *, at_end: bool = True) -> None:
        self.path = path
        self.clock = FakeClock()
        self.tally = Tally()
        self.text = b""
        self.moments: list[float] = []
        log = logging.getLogger("engine_log")
        self.followed = Followed(path, self.clock, log, self.tally, self._take, at_end=at_end)

    def _take(self, block: bytes, moment: float) -> None:
        self.text += block
        self.moments.append(moment)

    def write(self, text: str, path: Path | None = None) -> None:
        with (path or self.path).open("a") as file:
            file.write(text)

    def look(self, seconds: float = 0.25) -> str:
        """What comes of the next look, after so many seconds."""
        self.clock.advance(seconds)
        self.text = b""
        self.followed.look()
        while self.followed.read():
            pass
        return self.text.decode("utf-8", "replace")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path / "engine.log")
    yield made
    made.followed.close()


def test_from_the_end_at_the_start_and_whole_lines_only(log: Log) -> None:
    log.write("old\n")
    assert log.look() == ""
    log.write("one\ntw")
    assert log.look() == "one\n"
    log.write("o\n")
    assert log.look() == "two\n"
    assert log.tally == Tally(lines=2)


def test_a_file_that_appears_later_is_read_from_its_beginning(log: Log) -> None:
    assert log.look() == ""
    log.write("first\n")
    assert log.look() == "first\n"
    assert log.tally.errors == 0


def test_rotation_by_rename_loses_nothing(log: Log, tmp_path: Path) -> None:
    log.write("old\n")
    log.look()
    old = tmp_path / "engine.log.1"
    log.write("before\n")
    log.path.rename(old)
    log.write("new\n")
    assert sorted(log.look().split()) == ["before", "new"]
    # The writer has not opened the new file yet.
    log.write("late\n", old)
    assert log.look() == "late\n"
    log.write("later\n", old)
    assert log.look(9) == "later\n"
    assert log.look(10.5) == ""
    log.write("too late\n", old)
    assert log.look() == ""


def test_the_last_line_of_a_file_needs_no_newline(log: Log, tmp_path: Path) -> None:
    log.write("")
    log.look()
    log.write("died in the mid")
    log.path.rename(tmp_path / "other")
    log.write("new\n")
    assert log.look() == "new\n"
    assert log.look(11) == "died in the mid\n"


def test_many_rotations_keep_few_files_open(log: Log, tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        log.write(f"{number}\n")
        assert log.look() == ("" if number == 0 else f"{number}\n")
        log.path.rename(tmp_path / f"old{number}")
    assert len(list(Path("/proc/self/fd").iterdir())) - before <= 5


def test_copytruncate(log: Log) -> None:
    log.write("0123456789\n" * 10)
    log.look()
    log.write("last\n")
    assert log.look() == "last\n"
    os.truncate(log.path, 0)
    assert log.look() == ""
    log.write("new\n")
    assert log.look() == "new\n"


def test_emptied_and_filled_beyond_where_it_was(log: Log) -> None:
    log.write("0123456789\n")
    log.look()
    os.truncate(log.path, 0)
    log.write("much longer than before\n" * 3)
    assert log.look() == "much longer than before\n" * 3


def test_a_writer_that_leaves_a_hole(log: Log) -> None:
    log.write("")
    log.look()
    with log.path.open("r+b") as file:
        file.write(b"x" * 4095 + b"\n")
        file.flush()
        log.look()
        os.truncate(log.path, 0)
        file.seek(1 << 40)
        file.write(b"after the hole\n")
    assert log.look().endswith("after the hole\n")
    assert len(log.text) < 70_000


def test_deleted_and_made_again(log: Log) -> None:
    log.write("old\n")
    log.look()
    with log.path.open("a") as file:
        log.path.unlink()
        file.write("to the deleted one\n")
        file.flush()
        assert log.look() == "to the deleted one\n"
        log.write("again\n")
        assert log.look() == "again\n"


def test_replaced_by_a_link(log: Log, tmp_path: Path) -> None:
    log.write("old\n")
    log.look()
    target = tmp_path / "target"
    log.write("linked\n", target)
    log.path.unlink()
    log.path.symlink_to(target)
    assert log.look() == "linked\n"
    log.write("more\n", target)
    assert log.look() == "more\n"
    log.path.unlink()
    log.path.symlink_to(log.path)
    assert log.look() == ""
    assert log.tally.errors == 1


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_what_is_no_file_is_refused_once_and_read_when_it_becomes_one(
    log: Log, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "fifo":
        os.mkfifo(log.path)
    elif kind == "directory":
        log.path.mkdir()
    else:
        log.path.symlink_to("/dev/zero")
    with caplog.at_level("INFO", "engine_log"):
        for _ in range(9):
            assert log.look(3) == ""
        assert caplog.messages == [f"{log.path}: not a regular file"]
        assert log.tally.errors == 9
        log.path.rmdir() if kind == "directory" else log.path.unlink()
        log.look(3)
        log.write("fine\n")
        assert log.look() == "fine\n"
        assert caplog.messages[1:] == [f"{log.path}: is read again"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be somebody else")
def test_without_permission_it_is_told_once_and_read_from_its_end_when_it_may_be(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    log.write("old\n")
    log.path.chmod(0o600)
    os.seteuid(65534)
    try:
        for _ in range(5):
            assert log.look(3) == ""
        assert caplog.messages == [f"{log.path}: Permission denied"]
        assert log.tally.errors == 5
        assert log.look(0.25) == ""
        assert log.tally.errors == 5
    finally:
        os.seteuid(0)
    assert log.look(3) == ""
    log.write("new\n")
    assert log.look() == "new\n"


def test_what_comes_too_fast_is_skipped_and_counted(log: Log) -> None:
    log.write("")
    log.look()
    line = "x" * 99 + "\n"
    log.write(line * (2 * MAX_BACKLOG // 100))
    size = log.path.stat().st_size
    tracemalloc.start()
    text = log.look()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(text) <= 1 << 20
    assert size - len(text) - 100 <= log.tally.skipped <= size - len(text) + 1
    assert peak < 8 << 20
    log.write("CUDA out of memory\n")
    assert log.look() == "CUDA out of memory\n"


def test_nul_bytes_and_bytes_that_are_no_text(log: Log) -> None:
    log.write("")
    log.look()
    with log.path.open("ab") as file:
        file.write(b"\0\0\0a\0\n\xff\xfe\n" + b"\0" * 100_000 + b"\n")
    log.look()
    assert log.text.startswith(b"\0\0\0a\0\n\xff\xfe\n")
    assert (log.tally.lines, log.tally.cut) == (3, 1)


def test_the_time_of_the_last_write_counts_where_it_is_credible(log: Log) -> None:
    log.write("")
    log.look()
    log.write("line\n")
    os.utime(log.path, (0, log.clock.wall - 0.2))
    log.look(0.25)
    assert log.moments == [pytest.approx(log.clock.wall - 0.45)]
    log.write("line\n")
    os.utime(log.path, (0, log.clock.wall + 5))
    log.look()
    assert log.moments[1] == log.clock.wall
