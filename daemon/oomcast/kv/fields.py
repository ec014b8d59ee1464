"""The values of a config.json, each checked when it is asked for: what a stranger wrote is never calculated with."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MOST_BYTES = 8 << 20
"""Quantised checkpoints list thousands of modules; the largest such files are near 1 MB."""
MOST_LAYERS = 4096
MOST = 1 << 24
"""Dimensions, heads and windows: a hundred times what any model has."""


class KvError(ValueError):
    """A config, or a question about it, that has no right answer. The text begins with the name of the field."""


class Fields:
    """One object of a config. Names are tried in turn; a null is as good as absent. Raises KvError for a bad value."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        if not isinstance(values, Mapping):
            raise KvError(f"config: should be an object, got {_shown(values)}")
        self._values = values

    def has(self, *names: str) -> bool:
        return self._named(names) is not None

    def mentions(self, name: str) -> bool:
        """Whether it is there, be it null."""
        return name in self._values

    def count(self, *names: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """A whole number. Raises KvError where it is absent without a default."""
        found = self._named(names)
        if found is None:
            if default is None:
                raise KvError(f"{names[0]}: missing")
            return default
        return _whole(found, self._values[found], least, most)

    def counts(self, *names: str, least: int = 0, most: int = MOST) -> tuple[int, ...]:
        """Whole numbers in a list; none where it is absent."""
        found = self._named(names)
        if found is None:
            return ()
        return tuple(_whole(found, value, least, most) for value in self._list(found))

    def words(self, *names: str) -> tuple[str, ...]:
        """Texts in a list; none where it is absent."""
        found = self._named(names)
        if found is None:
            return ()
        words = tuple(self._list(found))
        if not all(isinstance(word, str) for word in words):
            raise KvError(f"{found}: should be a list of texts, got {_shown(self._values[found])}")
        return words

    def word(self, *names: str) -> str:
        """A text, "" where it is absent."""
        found = self._named(names)
        if found is None:
            return ""
        value = self._values[found]
        if not isinstance(value, str) or len(value) > 1000:
            raise KvError(f"{found}: should be a text, got {_shown(value)}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise KvError(f"{name}: should be true or false, got {_shown(value)}")
        return value

    def inner(self, *names: str) -> "Fields | None":
        """An object within this one, None where it is absent."""
        found = self._named(names)
        if found is None:
            return None
        value = self._values[found]
        if not isinstance(value, Mapping):
            raise KvError(f"{found}: should be an object, got {_shown(value)}")
        return Fields(value)

    def raw(self, *names: str) -> Any:
        """A value as it is, to be shown and not calculated with."""
        found = self._named(names)
        return None if found is None else self._values[found]

    def over(self, defaults: Mapping[str, Any]) -> "Fields":
        """These values, and the defaults for what is absent."""
        return Fields({**defaults, **{name: value for name, value in self._values.items() if value is not None}})

    def _named(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self._values.get(name) is not None), None)

    def _list(self, name: str) -> list[Any]:
        value = self._values[name]
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise KvError(f"{name}: should be a list of at most {MOST_LAYERS} entries, got {_shown(value)}")
        return value


def load(path: Path) -> dict[str, Any]:
    """The object in a config.json, or in that file of a folder. Raises KvError, never waits for a FIFO's writer."""
    file = path
    try:
        if path.is_dir():
            file = path / "config.json"
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as opened:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise KvError(f"{file}: not a regular file")
            text = opened.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, KvError):
            raise
        raise KvError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if len(text) > _MOST_BYTES:
        raise KvError(f"{file}: larger than {_MOST_BYTES} bytes, which no model's config is")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise KvError(f"{file}: no JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise KvError(f"{file}: should hold an object, got {_shown(value)}")
    return value


def _whole(name: str, value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise KvError(f"{name}: should be a whole number from {least} to {most}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    # Only scalars: the text of what is nested may be as deep and as long as the file.
    if isinstance(value, int) and not -(10**18) < value < 10**18:
        return "a number of more than 18 digits"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "..")
    return f"a {type(value).__name__}"
