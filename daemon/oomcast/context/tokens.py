"""How many tokens a text file has: by a tokenizer, or by its size as far as that tells. Nothing is downloaded."""

import codecs
import importlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

_PIECE = 1 << 20
_MOST_BYTES = 1 << 30
_MOST_TOKENIZED = 64 << 20
_MOST_TOKENIZER = 64 << 20
_MAX_REASON = 200

USUAL_BYTES = 4
"""Bytes of a token in plain English, about; fewer in code and in other scripts."""


class TokensError(ValueError):
    """A file that cannot be counted. The text names it."""


class Tokens(NamedTuple):
    """least, most: tokens; by size the usual number and the largest possible one. size: bytes of the file, or None."""

    method: Literal["given", "tokenizer", "size"]
    least: int
    most: int
    size: int | None = None


def by_size(path: Path) -> Tokens:
    """Raises TokensError where it is no text."""
    size = sum(len(piece.encode()) for piece in _text(path, _MOST_BYTES))
    # A tokenizer that works on bytes makes no more tokens than there are, but for what it puts in front.
    return Tokens("size", -(-size // USUAL_BYTES), size, size)


def by_tokenizer(path: Path, tokenizer: Path) -> Tokens:
    """tokenizer: a tokenizer.json, or a folder with one. With what it adds to every text, without a chat template.

    A long text is taken in pieces of whole lines, as far as there are lines; each may come to a token more than it has.
    Raises TokensError.
    """
    made = _tokenizer(tokenizer)
    count = size = 0
    rest, first = "", True
    for piece in _text(path, _MOST_TOKENIZED):
        size += len(piece.encode())
        rest += piece
        if len(rest) >= _PIECE:
            cut = rest.rfind("\n") + 1 or len(rest)
            count += len(made.encode(rest[:cut], add_special_tokens=first).ids)
            rest, first = rest[cut:], False
    count += len(made.encode(rest, add_special_tokens=first).ids)
    return Tokens("tokenizer", count, count, size)


def _tokenizer(path: Path) -> Any:
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError as error:
        raise TokensError(
            f"--tokenizer needs the package tokenizers, which is not there ({error}): pip install tokenizers"
        ) from error
    file = path / "tokenizer.json" if path.is_dir() else path
    text = "".join(_text(file, _MOST_TOKENIZER))
    try:
        made = tokenizers.Tokenizer.from_str(text)
    except Exception as error:
        # It raises nothing more special.
        raise TokensError(f"{file}: no tokenizer: {str(error)[:_MAX_REASON]}") from error
    # The file may say that texts are cut to, or filled up to, a length: what is asked for is how long they are.
    made.no_truncation()
    made.no_padding()
    return made


def _text(path: Path, most: int) -> Iterator[str]:
    """The file in pieces. most: bytes of it. Raises TokensError, never waits for a FIFO's writer."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 0
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise TokensError(f"{path}: not a regular file")
            while piece := file.read(_PIECE):
                size += len(piece)
                if size > most:
                    raise TokensError(f"{path}: larger than {most >> 20} MiB")
                if b"\0" in piece:
                    raise TokensError(f"{path}: binary, no text")
                yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise TokensError(f"{path}: no text in UTF-8") from error
    except OSError as error:
        raise TokensError(f"{path}: {error.strerror or error}") from error
