"""Counting the tokens of a file. A real tokenizer is at hand where engines are."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from host import ENGINES
from oomcast.context import tokens
from oomcast.context.tokens import Tokens, TokensError, by_size, by_tokenizer
from requires import needs

A_PIECE = 1 << 20


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "input.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("a", 1, 1),
        ("abcd", 1, 4),
        ("abcde", 2, 5),
        ("日本", 2, 6),
        ("x" * (A_PIECE + 1), 262_145, 1_048_577),
    ],
)
def test_by_size(tmp_path: Path, text: str, least: int, most: int) -> None:
    assert by_size(written(tmp_path, text)) == Tokens("size", least, most, most)


def test_a_character_across_two_pieces(tmp_path: Path) -> None:
    text = "a" * (A_PIECE - 1) + "é" + "b"
    assert by_size(written(tmp_path, text)).most == A_PIECE + 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text\0more", "binary, no text"),
        (b"\x1f\x8b\x08 gzip", "no text in UTF-8"),
        (b"cut \xc3", "no text in UTF-8"),
    ],
)
def test_what_is_no_text(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(TokensError, match=message):
        by_size(written(tmp_path, content))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, message in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory"),
        (tmp_path / "fifo", "not a reg"),
    ):
        with pytest.raises(TokensError, match=message) as caught:
            by_size(path)
        assert str(path) in str(caught.value)


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.write(b"a" * A_PIECE)
        file.truncate(1 << 40)
    # What follows the first piece is a hole, so NUL.
    with pytest.raises(TokensError, match="binary"):
        by_size(path)


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_MOST_BYTES", 2 * A_PIECE)
    assert by_size(written(tmp_path, "a" * (2 * A_PIECE))).most == 2 * A_PIECE
    with pytest.raises(TokensError, match="larger than 2 MiB"):
        by_size(written(tmp_path, "a" * (2 * A_PIECE + 1)))


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokensError, match="pip install tokenizers"):
        by_tokenizer(written(tmp_path, "a"), tmp_path)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package `tokenizers` of the engines' environment, and nothing else of that."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "tokenizers").symlink_to(next((ENGINES / "lib").glob("python*/site-packages/tokenizers")))
    monkeypatch.syspath_prepend(str(site))


def words(tmp_path: Path, **changes: Any) -> Path:
    """A tokenizer in which each word is a token, and so is the end of a line; it puts one in front of a text."""
    special = {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    made = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            **{"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None},
            **{"pad_id": 0, "pad_type_id": 0, "pad_token": "<s>"},
        },
        "added_tokens": [{**special, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"<s>": 0, "?": 1}, "unk_token": "?"},
        **changes,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    return tmp_path


@needs("engines")
@pytest.mark.usefixtures("package")
def test_by_tokenizer(tmp_path: Path) -> None:
    # Neither cut to 4 nor filled up to 64, as the file says.
    text = written(tmp_path, "one two three four five six\n")
    assert by_tokenizer(text, words(tmp_path)) == Tokens("tokenizer", 7, 7, 28)
    assert by_tokenizer(text, tmp_path / "tokenizer.json").most == 7
    assert by_tokenizer(written(tmp_path, ""), tmp_path) == Tokens("tokenizer", 1, 1, 0)


@needs("engines")
@pytest.mark.usefixtures("package")
def test_a_long_text_is_cut_at_ends_of_lines(tmp_path: Path) -> None:
    lines = A_PIECE // 10 * 2
    assert by_tokenizer(written(tmp_path, "word words\n" * lines), words(tmp_path)).most == 2 * lines + 1
    # Without lines there is nowhere to cut but in a word.
    assert 2 <= by_tokenizer(written(tmp_path, "x" * (3 * A_PIECE)), tmp_path).most <= 5


@needs("engines")
@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("content", ["", "{}", "[]", "no JSON", '{"version": "9"}'])
def test_no_tokenizer(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(TokensError, match=r"tokenizer\.json: no tokenizer: "):
        by_tokenizer(written(tmp_path, "a"), tmp_path)


@needs("engines")
@pytest.mark.usefixtures("package")
def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokensError, match=r"tokenizer\.json: No such file"):
        by_tokenizer(written(tmp_path, "a"), tmp_path)
