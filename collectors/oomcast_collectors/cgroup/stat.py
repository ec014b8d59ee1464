"""Reading the memory controller's files: flat "key value" text and single numbers, of v1 and v2."""

from collections.abc import Callable, Sequence
from operator import itemgetter

UNLIMITED_V1 = 1 << 62
"""v1 writes "no limit" as a page-rounded 2^63 - 1, whatever the page size: above this it is none."""


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
        self._names: Callable[[Sequence[bytes]], object] = tuple
        self._numbers: Callable[[Sequence[bytes]], Sequence[bytes]] = tuple
        self._length = -1

    def pick(self, text: bytes) -> Sequence[int | None]:
        """The numbers of the keys, in their order; None for a key that the file does not have. Raises Malformed."""
        tokens = text.split()
        if len(tokens) != self._length or self._names(tokens) != self._present:
            return self._learn(tokens, text)
        try:
            values = list(map(int, self._numbers(tokens)))
        except ValueError:
            raise Malformed(f"not a number in {text[:80]!r}") from None
        if min(values) < 0 or text[-1:] != b"\n":
            raise Malformed(f"negative or cut off: {text[-80:]!r}")
        return values

    def _learn(self, tokens: list[bytes], text: bytes) -> Sequence[int | None]:
        if len(tokens) % 2 or text[-1:] != b"\n":
            raise Malformed(f"not lines of key and value: {text[-80:]!r}")
        places = {key: i for i, key in enumerate(tokens) if i % 2 == 0}
        present = tuple(key for key in self._keys if key in places)
        if present == self._keys and len(present) > 1:
            self._names = itemgetter(*(places[key] for key in present))
            self._numbers = itemgetter(*(places[key] + 1 for key in present))
            self._present, self._length = present, len(tokens)
        return [number(tokens[places[key] + 1]) if key in places else None for key in self._keys]


def table(text: bytes) -> dict[str, int]:
    """All of a flat keyed file. Raises Malformed."""
    tokens = text.split()
    if len(tokens) % 2 or text[-1:] not in (b"\n", b""):
        raise Malformed(f"not lines of key and value: {text[-80:]!r}")
    return {key.decode("ascii", "replace"): number(value) for key, value in zip(*[iter(tokens)] * 2, strict=True)}


def number(text: bytes) -> int:
    """A single count or size. Raises Malformed for anything but digits."""
    text = text.strip()
    # isdigit() alone: int() would also take "1_000", "+1" and other alphabets' digits.
    if not text.isdigit() or len(text) > 20:
        raise Malformed(f"not a number: {text[:80]!r}")
    return int(text)


def limit(text: bytes) -> int | None:
    """A limit in bytes, None for none: "max" on v2, a number near 2^63 on v1. Raises Malformed."""
    if text.strip() == b"max":
        return None
    value = number(text)
    return None if value >= UNLIMITED_V1 else value


def pressure(text: bytes) -> dict[str, float]:
    """The stall totals of a PSI file in seconds by kind, {"some": .., "full": ..}. Raises Malformed."""
    totals: dict[str, float] = {}
    for line in text.splitlines():
        kind, *fields = line.split()
        if kind not in (b"some", b"full") or not fields or not fields[-1].startswith(b"total="):
            raise Malformed(f"not a line of pressure: {line[:80]!r}")
        totals[kind.decode()] = number(fields[-1][6:]) / 1e6
    return totals
