import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import example as given_example
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from daemon.settings_cases import SPECS, engines, loaded, problems
from oomcast.settings import SettingsError, load
from oomcast.settings_file import MAX_BYTES, MAX_DEPTH, MAX_NODES, parse

UNREADABLE: dict[str, tuple[str | bytes, str]] = {
    "bomb": ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "2:8: *a is a YAML alias"),
    "recursive": ("a: &a [*a]", "1:8: *a is a YAML alias"),
    "merge": ("a: &a {b: 1}\nc: {<<: *a}", "2:9: *a is a YAML alias"),
    "glob": ("serving_processes: [*vllm]", "1:21: *vllm is a YAML alias, which is not supported; quote it"),
    "object": ("a: !!python/object:os.system x", "1:4: the tag tag:yaml.org,2002:python/object:os.system is not"),
    "tag": ("a: !!int x", "1:4: the tag tag:yaml.org,2002:int is not supported"),
    "tab": ("http:\n\tlisten: x", "2:1: is not YAML: found character that cannot start any token; a tab cannot"),
    "brackets": ("http: {listen: [::1]:80}", "1:17: is not YAML: did not find expected node content; put the value"),
    "colon": ("a: b: c", "1:5: is not YAML: mapping values are not allowed in this context"),
    "quote": ("a: 'x", "1:6: is not YAML: found unexpected end of stream"),
    "documents": ("a: 1\n---\nb: 1\n", "2:1: holds more than one YAML document"),
    "list": ("- a", "1:1: must hold `key: value` lines"),
    "text": ("just text", "1:1: must hold `key: value` lines"),
    "deep": ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, f"1:{MAX_DEPTH + 3}: is nested deeper than {MAX_DEPTH} levels"),
    "deeper": ("{" * 500_000, "1:1001: is not YAML: exceeded maximum nesting depth"),
    "wide": ("a: [" + "1," * 400_000 + "]", f"holds more than {MAX_NODES} keys and values"),
    "control": ("http:\n  a: \x00", "2: holds the character '\\x00'"),
    "binary": (b"\x7fELF\n\xff\xfe", "2: is not UTF-8 text"),
    "utf16": ("http: {}".encode("utf-16"), "1: is not UTF-8 text"),
    "large": (b"#" * (MAX_BYTES + 1), f" is larger than {MAX_BYTES} bytes"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_not_a_settings_file_is_one_clear_problem(tmp_path: Path, case: str) -> None:
    text, expected = UNREADABLE[case]
    began = time.monotonic()
    (told,) = problems(tmp_path, text)
    assert time.monotonic() - began < 2
    assert told.startswith("oomcast.yaml:")
    assert expected in told


def test_keys_and_scalars_that_yaml_reads_otherwise(tmp_path: Path) -> None:
    assert problems(tmp_path, "on: 1\n? [a]\n: 1\nlog: {level: info, level: debug, format: off}") == [
        "oomcast.yaml:1:1: on: unknown key",
        "oomcast.yaml:2:3: a key must be plain text",
        "oomcast.yaml:4:20: log.level: is set twice, first in line 4",
        "oomcast.yaml:4:34: log.format: should be 'logfmt' or 'json', not false",
    ]
    settings = loaded(tmp_path, "collectors: {engines: {unit: 2026-01-02, words: [10:30, 1.2.3, '5']}}")
    assert engines(settings).unit == "2026-01-02"
    assert engines(settings).words == ("10:30", "1.2.3", "5")


@pytest.mark.parametrize("text", ["9" * 5000, "0x_", "._", "-.inf", "1e999999"])
def test_odd_numbers(tmp_path: Path, text: str) -> None:
    (told,) = problems(tmp_path, f"collectors: {{cgroup: {{interval: {text}}}}}")
    assert told.startswith("oomcast.yaml:1:23: collectors.cgroup.interval: ")
    assert len(told) < 200


def test_a_problem_does_not_repeat_text_or_escape_sequences(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, 'http: {web_config: /x, listen: "hunter2"}')
    assert "hunter2" not in told
    (told,) = problems(tmp_path, f'"\\e[2J\\n{"k" * 500}": 1')
    assert told.isprintable()
    assert told == f"oomcast.yaml:1:1: \\x1b[2J\\n{'k' * 75}…: unknown key"


def test_many_problems_are_cut(tmp_path: Path) -> None:
    told = problems(tmp_path, "".join(f"k{number}: 1\n" for number in range(9_000)))
    assert len(told) == 51
    assert told[-1] == "and 8950 more problems"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    def told(path: Path) -> str:
        with pytest.raises(SettingsError) as caught:
            load(path, {}, SPECS)
        return str(caught.value)

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert told(tmp_path / "none") == f"{tmp_path}/none: cannot be read: No such file or directory"
    assert told(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    assert told(tmp_path / "pipe") == f"{tmp_path}/pipe: cannot be read: not a regular file"
    assert told(tmp_path / "loop") == f"{tmp_path}/loop: cannot be read: Too many levels of symbolic links"
    assert told(Path("/dev/zero")) == "/dev/zero: cannot be read: not a regular file"
    assert told(Path("a\0b")) == "a\\x00b: cannot be read: embedded null byte"


def test_a_file_we_may_not_read(tmp_path: Path) -> None:
    path = tmp_path / "oomcast.yaml"
    path.write_text("")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(SettingsError) as caught:
            load(path, {}, SPECS)
    finally:
        os.seteuid(user)
    assert str(caught.value) == f"{path}: cannot be read: Permission denied"


@hypothesis_settings(deadline=None)
@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(yaml.safe_dump))
@given_example("? {a: b}\n: c")
@given_example("a: \ud800")
def test_any_text_is_settings_or_an_error(text: str) -> None:
    try:
        outcome = parse(text, "x").values
    except SettingsError as error:
        outcome = {"error": str(error)}
    assert isinstance(outcome, dict)
    assert str(outcome.get("error", "")).isprintable()
