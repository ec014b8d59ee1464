"""Reading the memory controller's files: flat "key value" text and single numbers, of v1 and v2.

The kernel ends every file with a newline; one without was cut off, and a number before the cut may have lost digits.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter

UNLIMITED_V1 = 1 << 62
"""v1 writes "no limit" as a page-rounded 2^63 - 1, whatever the page size: above this it is none."""

_DIGITS = 20
_LARGEST = 10**_DIGITS - 1
"""2^64 has as many digits."""


class Malformed(ValueError):
    """A file that does not read as what it is. Costs its cgroup one reading."""


class Picker:
    """Picks a few keys out of flat keyed text such as memory.stat.

    A kernel writes the keys of such a file always in the same order, so their places are looked up once and then only
    checked: a quarter of the cost of a dictionary.
    """

    def __init__(self, *keys: bytes) -> None:
        self._keys = keys
        self._present: tuple[bytes, ...] = ()
        self._layout: list[bytes] | None = None
        self._names: Callable[[Sequence[bytes]], object] = tuple
        self._numbers: Callable[[Sequence[bytes]], Sequence[bytes]] = tuple
        self._length = -1

    def pick(self, text: bytes) -> Sequence[int | None]:
        """The numbers of the keys, in their order; None for a key that the file does not have. Raises Malformed."""
        tokens = text.split()
        if len(tokens) != self._length or self._names(tokens) != self._present:
            return self._learn(tokens, text)
        # Where a key is missing it may have come in another's place, so then every name is compared.
        if self._layout is not None and tokens[::2] != self._layout:
            return self._learn(tokens, text)
        numbers = self._numbers(tokens)
        # int() alone would take "1_000" and "+1" too.
        digits = b"".join(numbers)
        if text[-1:] != b"\n" or len(digits) > _DIGITS * len(numbers) or not digits.isdigit():
            raise Malformed(f"not lines of key and number: {text[-80:]!r}")
        values = list(map(int, numbers))
        if max(values) > _LARGEST:
            raise Malformed(f"too large a number in {text[:80]!r}")
        if self._layout is None:
            return values
        by_key = dict(zip(self._present, values, strict=True))
        return [by_key.get(key) for key in self._keys]

    def _learn(self, tokens: list[bytes], text: bytes) -> Sequence[int | None]:
        places = {key: i for i, key in enumerate(_keyed(tokens, text)) if i % 2 == 0}
        present = tuple(key for key in self._keys if key in places)
        picked = [_number(tokens[places[key] + 1]) if key in places else None for key in self._keys]
        if len(present) > 1:  # an itemgetter of one item returns no tuple
            self._names = itemgetter(*(places[key] for key in present))
            self._numbers = itemgetter(*(places[key] + 1 for key in present))
            self._present, self._length = present, len(tokens)
            self._layout = None if present == self._keys else tokens[::2]
        return picked


def table(text: bytes) -> dict[str, int]:
    """All of a flat keyed file. Raises Malformed."""
    tokens = _keyed(text.split(), text)
    return {key.decode("ascii", "replace"): _number(value) for key, value in zip(*[iter(tokens)] * 2, strict=True)}


def number(text: bytes) -> int:
    """The one count or size that is all of a file. Raises Malformed."""
    if text[-1:] != b"\n":
        raise Malformed(f"cut off: {text[-80:]!r}")
    return _number(text[:-1])


def limit(text: bytes) -> int | None:
    """The limit in bytes that is all of a file, None for none: "max" on v2, near 2^63 on v1. Raises Malformed."""
    return None if text == b"max\n" else bounded(number(text))


def bounded(value: int | None) -> int | None:
    """None for a number by which v1 means no limit."""
    return None if value is None or value >= UNLIMITED_V1 else value


def pressure(text: bytes) -> dict[str, float]:
    """The stall totals of a PSI file in seconds by kind, {"some": .., "full": ..}. Raises Malformed."""
    if text[-1:] != b"\n":
        raise Malformed(f"cut off: {text[-80:]!r}")
    totals: dict[str, float] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 2 or fields[0] not in (b"some", b"full") or not fields[-1].startswith(b"total="):
            raise Malformed(f"not a line of pressure: {line[:80]!r}")
        totals[fields[0].decode()] = _number(fields[-1][6:]) / 1e6
    return totals


def _keyed(tokens: list[bytes], text: bytes) -> list[bytes]:
    if len(tokens) % 2 or text[-1:] != b"\n" or not b"".join(tokens[1::2]).isdigit():
        raise Malformed(f"not lines of key and number: {text[-80:]!r}")
    return tokens


def _number(digits: bytes) -> int:
    # isdigit() of bytes takes ASCII alone; int() would also take "1_000" and "+1".
    if not digits.isdigit() or len(digits) > _DIGITS:
        raise Malformed(f"not a number: {digits[:80]!r}")
    return int(digits)
