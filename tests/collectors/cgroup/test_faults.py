"""Files that are absent, unreadable, garbage or huge cost their own cgroup, once in the log, until they read again."""

import logging
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.conftest import MakeBench
from collectors.cgroup.support import open_files, v1, v2
from oomcast.contract import Facts, NotPresent
from oomcast_collectors.cgroup.files import LARGEST, Budget, File

BAD = {
    "empty": "",
    "garbage": "\x00\xff garbage\n",
    "cut off": "12",
    "negative": "-1\n",
    "underscores": "1_0\n",
    "other digits": "٣\n",
    "too long": "9" * 30 + "\n",
    "huge": "anon 1\n" * (LARGEST // 7 + 1),
}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("file", ["memory.current", "memory.stat", "memory.events", "memory.max"])
@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_a_bad_file_costs_its_cgroup_alone_and_one_line(
    root: trees.Host, bench: MakeBench, caplog: pytest.LogCaptureFixture, file: str, text: str
) -> None:
    root.write("/bad", v2(used=5, limit=10))
    root.write("/good", v2(used=6, limit=10))
    at = bench(root).run()
    root.write("/bad", {file: text})
    for i in (1, 2, 3):
        at.run()
        assert at.value("read_errors_total") == i
        assert (at.samples("memory_used_bytes", "/bad"), at.levelled()) == ([], {"/good"})
        assert at.value("memory_used_bytes", "/good") == 6
    assert len(warnings(caplog)) == 1
    assert warnings(caplog)[0].startswith("/bad: ")
    root.write("/bad", v2(used=7, limit=10))
    assert at.run().value("memory_used_bytes", "/bad") == 7
    assert at.levelled() == {"/bad", "/good"}
    root.write("/bad", {file: text})
    at.run()
    assert len(warnings(caplog)) == 2  # it is news again


def test_bad_v1_files_too(tmp_path: Path, bench: MakeBench) -> None:
    host = trees.copy("v1-docker", tmp_path)
    host.write("/bad", {**v1(), "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill"})
    at = bench(host).run()
    assert (at.value("read_errors_total"), at.value("oom_kills_total", "/bad")) == (1, None)


def test_a_bad_file_of_the_full_set_costs_the_core_nothing(
    root: trees.Host, bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    root.write("/a", {**v2(used=5, limit=10), "memory.high": "garbage\n"})
    at = bench(root, full=["*"]).run().run()
    assert (at.value("memory_used_bytes", "/a"), at.value("memory_high_bytes", "/a")) == (5, None)
    assert at.levelled() == {"/a"}
    assert at.value("read_errors_total") == 2
    assert warnings(caplog) == ["the full set of /a: not a number: b'garbage'; left out until it reads"]
    root.write("/a", {"memory.high": "9\n"})
    assert at.run().value("memory_high_bytes", "/a") == 9


def test_a_directory_or_a_fifo_in_the_place_of_a_file(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2())
    root.write("/b", v2())
    for path in ("/a", "/b"):
        (root.cgroup(path) / "memory.current").unlink()
    (root.cgroup("/a") / "memory.current").mkdir()
    os.mkfifo(root.cgroup("/b") / "memory.current")
    root.write("/c", v2(used=3))
    at = bench(root).run()
    assert (at.value("memory_used_bytes", "/c"), at.value("read_errors_total")) == (3, 2)


def test_a_symbolic_link_is_not_followed(root: trees.Host, bench: MakeBench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("12345\n")
    root.write("/a", v2())
    (root.cgroup("/a") / "memory.current").unlink()
    (root.cgroup("/a") / "memory.current").symlink_to(secret)
    at = bench(root).run()
    assert (at.value("memory_used_bytes", "/a"), at.value("read_errors_total")) == (None, 1)


def test_a_cgroup_that_vanishes_between_two_files_is_no_error(root: trees.Host, bench: MakeBench) -> None:
    root.write("/a", v2(kills=2))
    root.write("/b", v2())
    at = bench(root).run()
    sweep = at.collector._sweep
    assert sweep
    node = next(node for node in sweep.nodes if node.path == "/a")
    renew = sweep._watch.renew

    def vanish_after_the_scan() -> list[object]:
        came = renew()
        node.close()  # an open file of the copy outlives its directory, one of the kernel's does not
        root.remove("/a")
        return list(came)

    sweep._watch.renew = vanish_after_the_scan  # type: ignore[method-assign,assignment]
    at.run()
    sweep._watch.renew = renew  # type: ignore[method-assign]
    assert (at.value("oom_kills_total", "/a"), at.value("memory_used_bytes", "/a"), at.shown()) == (2, None, {"/b"})
    at.run()
    assert (at.value("oom_kills_total", "/a"), at.value("read_errors_total"), at.shown()) == (2, 0, {"/b"})


def test_names_that_the_log_and_the_format_cannot_bear(root: trees.Host, bench: MakeBench) -> None:
    names = ['quo"te', "new\nline", "back\\slash", os.fsdecode(b"\xff\xfe"), "ü", "x" * 200]
    for name in names:
        root.write(f"/{name}", v2())
    at = bench(root).run()
    assert at.shown() == {f"/{name}".encode("utf-8", "backslashreplace").decode() for name in names}
    assert at.text().count("oomcast_cgroup_memory_used_bytes{") == len(names)


@pytest.fixture
def few_files() -> Iterator[None]:
    """A hard limit that leaves the collector descriptors for three files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (259, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """Of the limit that this process has, as if it could not be raised, three descriptors are to be kept."""
    budget = Budget()
    monkeypatch.setattr(budget, "left", 3)
    monkeypatch.setattr("oomcast_collectors.cgroup.sweep.Budget", lambda: budget)
    return budget


def test_the_soft_limit_is_raised(few_files: None) -> None:
    budget = Budget()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (soft, budget.left) == (hard, hard - 256)


def test_without_descriptors_files_are_opened_for_each_reading(
    root: trees.Host, bench: MakeBench, budget: Budget
) -> None:
    for name in "abcde":
        root.write(f"/{name}", v2(kills=1))
    before = open_files()
    at = bench(root).run()
    assert (open_files() - before, budget.left) == (3, 0)
    for name in "abcde":
        root.write(f"/{name}", v2(used=5))
    at.run()
    assert {at.value("memory_used_bytes", f"/{name}") for name in "abcde"} == {5}
    root.remove("/a")
    at.run()
    assert (open_files() - before, budget.left) == (3, 0)
    at.close()
    assert (open_files() - before, budget.left) == (0, 3)


def test_a_cgroup_made_anew_is_seen_without_kept_files(root: trees.Host, bench: MakeBench, budget: Budget) -> None:
    budget.left = 0
    root.write("/a", v2(kills=3))
    at = bench(root).run()
    root.recreate("/a")
    root.write("/a", v2(kills=1))
    at.run()
    assert at.run().value("oom_kills_total", "/a") == 4


def test_a_file_grows_beyond_its_usual_size(tmp_path: Path) -> None:
    budget = Budget()
    path = tmp_path / "f"
    file = File(str(tmp_path), "f", budget, 8)
    for size in (7, 8, 9, 5000, LARGEST - 1, 3):
        path.write_bytes(b"x" * size)
        assert file.read() == b"x" * size
    path.write_bytes(b"x" * LARGEST)
    with pytest.raises(OSError, match="larger than any such file"):
        file.read()
    file.close()


def test_nothing_stays_open_after_the_end(root: trees.Host, bench: MakeBench) -> None:
    for name in "abc":
        root.write(f"/{name}", {**v2(), "memory.high": "max\n", "memory.pressure": "some total=1\n"})
    before = open_files()
    at = bench(root, full=["*"]).run()
    assert open_files() - before == 3 * 6
    at.close()
    assert open_files() == before
    with pytest.raises(NotPresent, match="it was stopped"):
        at.run()
    assert open_files() == before


def test_a_tree_that_cannot_be_listed_for_want_of_descriptors_keeps_what_is_known(
    root: trees.Host, bench: MakeBench
) -> None:
    root.write("/a", v2(kills=2))
    at = bench(root).run()
    sweep = at.collector._sweep
    root.write("/b", v2())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(held), hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            at.run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)
    at.run()
    assert at.collector._sweep is sweep
    assert at.shown() == {"/a", "/b"}


def test_want_of_descriptors_is_told_once_for_all_cgroups(
    root: trees.Host, bench: MakeBench, budget: Budget, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    budget.left = 0
    for name in "abcdef":
        root.write(f"/{name}", v2())
    at = bench(root).run()
    sweep = at.collector._sweep
    assert sweep is not None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(held), hard))
    try:
        for node in sweep.nodes:
            sweep._read(node, Facts())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)
    assert warnings(caplog) == ["file descriptors for cgroups: [Errno 24] Too many open files; left out until it reads"]
    assert {at.run().value("memory_used_bytes", f"/{name}") for name in "abcdef"} == {1 << 20}
    assert "file descriptors for cgroups reads again" in caplog.text
