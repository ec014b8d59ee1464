"""Descriptions of probes: the shipped ones, and whatever lies in somebody's folder."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oomcast_collectors.ebpf.description import SHIPPED, Description, DescriptionError, Uprobe, read

GOOD = "help: counts\ntracepoints:\n  - {event: 'sched:sched_process_exec', function: on_exec}\n"
NEVER = "help: counts\nuprobes:\n  - {library: 'libc.so*', symbol: %s}\n"


def write(folder: Path, description: str | bytes = GOOD, program: str = "int x;\n") -> Path:
    data = description.encode() if isinstance(description, str) else description
    (folder / "own.yaml").write_bytes(data)
    (folder / "own.c").write_text(program)
    return folder


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.yaml")))
def test_the_shipped_ones_can_be_read(name: str) -> None:
    description, program = read(name, None)
    for function in [point.function for point in description.tracepoints]:
        assert f"int {function}(" in program


def test_one_of_the_folder_comes_before_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "follow.yaml").write_text(GOOD)
    (tmp_path / "follow.c").write_text("int mine;\n")
    description, program = read("follow", tmp_path)
    assert (description.help, program) == ("counts", "int mine;\n")
    assert read("follow", None)[1] != program


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "own.yaml"),
        ("- a\n- b\n", "own.yaml"),
        ("help: x\n", "needs a tracepoint or an uprobe"),
        ("help: [unclosed", "own.yaml: while parsing"),
        ("help: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        (GOOD + "tracepoint: []\n", "tracepoint: Extra inputs are not permitted"),
        (GOOD.replace("sched:", "sched/../"), "tracepoints.0.event"),
        (GOOD + "constants: {'X 1\\n#include \"/etc/passwd\"': 1}\n", "constants"),
        (GOOD + "constants: {X: '1\\n#include'}\n", "constants.X"),
        (GOOD + "tables: {hits: {table: hits, kind: histogram}}\n", "tables.hits.kind"),
        (NEVER % "malloc", "malloc: needs entry, leave or both"),
        (NEVER % "'/(/', entry: f", "missing"),
        ("[" * 100_000, "own.yaml"),
        ("a: &a [x]\nb: &b [*a, *a, *a, *a, *a, *a]\n" + "".join(
            f"{y}: &{y} [*{x}, *{x}, *{x}, *{x}, *{x}, *{x}, *{x}, *{x}, *{x}]\n"
            for x, y in zip("bcdefghi", "cdefghij", strict=True)
        ) + "help: *j\ntracepoints: *j\n", "own.yaml"),
        ("help: " + "x" * (300 << 10), "own.yaml is larger than 262144 bytes"),
        (b"help: \xff\xfe\n", "own.yaml"),
        (b"\0" * 1000, "own.yaml"),
        ("help: &a [*a]\n", "own.yaml"),
    ],
)  # fmt: skip
def test_what_is_no_description_names_the_file(text: str | bytes, reason: str, tmp_path: Path) -> None:
    write(tmp_path, text)
    with pytest.raises(DescriptionError, match=r"own\.yaml") as raised:
        read("own", tmp_path)
    assert reason in str(raised.value)
    assert len(str(raised.value)) < 1000


def loop(path: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def missing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize("make", [loop, dangling, endless, os.mkfifo, Path.mkdir, missing])
@pytest.mark.parametrize("name", ["own.yaml", "own.c"])
def test_what_is_no_file(make: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    make(tmp_path / name)
    try:
        read("own", tmp_path)
    except DescriptionError as error:
        assert "own" in str(error)  # noqa: PT017 - a FIFO in the place of a program is an empty one
    else:
        assert (make, name) == (os.mkfifo, "own.c")


def test_a_probe_that_is_nowhere(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"probes/nowhere\.yaml: No such file"):
        read("nowhere", tmp_path)


def test_which_files_are_meant() -> None:
    probe = Uprobe(library="libc.so*|ld-musl-*|@", symbol="malloc", entry="f")
    assert probe.of("libc.so.6", False)
    assert probe.of("ld-musl-x86_64.so.1", False)
    assert probe.of("server", True)
    assert not probe.of("server", False)
    assert not probe.of("libcurl.so.4", False)
    assert not Uprobe(library="libc.so*", symbol="malloc", entry="f").of("server", True)


def test_a_description_is_not_changed_by_those_who_read_it() -> None:
    description = Description.model_validate({"help": "x", "tracepoints": [{"event": "a:b", "function": "f"}]})
    with pytest.raises(ValueError, match="frozen"):
        description.help = "y"


def test_a_folder_that_cannot_be_looked_into() -> None:
    with pytest.raises(DescriptionError, match="File name too long"):
        read("crashes", Path("/", "x" * 300))
