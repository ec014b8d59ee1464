"""How old what is outstanding is: counts by time of birth, the coarser the older they are."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

EPOCH_SHIFT = 25
"""An epoch is 2^25 ns, 34 ms."""

_STEP = 5
_WIDTHS: Mapping[int, int] = MappingProxyType({0: 1 << 9, 5: 1 << 14, 10: 1 << 19, 15: 1 << 62})
"""By the logarithm of a bucket's width: the age from which on it is merged into one of the next width. Both in epochs.

The program tells of births in these widths, too, but from twice the age on: so what it tells is never narrower than the
bucket. A bucket is at most a sixteenth of its age wide."""

_Bucket = tuple[int, int]
"""The logarithm of its width, and how many such widths before it began the machine did."""


class Births:
    """Blocks of one process and kind by when they were born. Not thread-safe. now: monotonic nanoseconds."""

    def __init__(self, since: int) -> None:
        """since: what was born before is not taken in."""
        self._since = since >> EPOCH_SHIFT
        self._buckets: dict[_Bucket, list[int]] = {}
        self._recent: dict[_Bucket, list[int]] = {}

    def add(self, epoch: int, size: int, blocks: int, now: int) -> None:
        """size, blocks: of births, or negative of ends, in an epoch or in the width that begins with it."""
        self._add(self._buckets, epoch, size, blocks, now)

    def recent(self, changes: Iterable[tuple[int, int, int]], now: int) -> None:
        """The same of some in place of those of the last time: they come again, and for good, with add()."""
        self._recent.clear()
        for epoch, size, blocks in changes:
            self._add(self._recent, epoch, size, blocks, now)

    def settle(self, now: int) -> None:
        """Merges what has become older and drops what is empty."""
        epoch = now >> EPOCH_SHIFT
        for (shift, number), (size, blocks) in list(self._buckets.items()):
            old = epoch - (number << shift) >= _WIDTHS[shift]
            if old or not (size or blocks):
                del self._buckets[shift, number]
            if old and (size or blocks):
                _count(self._buckets, (shift + _STEP, number >> _STEP), size, blocks)

    def older(self, seconds: float, now: int) -> tuple[int, int]:
        """(bytes, blocks) that are older. What may be younger, as it is in one bucket with such, is not among them."""
        end = (now - int(seconds * 1e9)) >> EPOCH_SHIFT
        sums = [0, 0]
        for buckets in (self._buckets, self._recent):
            for (shift, number), (size, blocks) in buckets.items():
                if (number + 1) << shift <= end:
                    sums[0] += size
                    sums[1] += blocks
        return max(sums[0], 0), max(sums[1], 0)

    def __len__(self) -> int:
        return len(self._buckets)

    def _add(self, buckets: dict[_Bucket, list[int]], epoch: int, size: int, blocks: int, now: int) -> None:
        known = next((b for b in ((shift, epoch >> shift) for shift in _WIDTHS) if b in self._buckets), None)
        if known is None:
            if epoch < self._since:
                return
            age = (now >> EPOCH_SHIFT) - epoch
            shift = next(shift for shift, limit in _WIDTHS.items() if age < limit)
            known = shift, epoch >> shift
        _count(buckets, known, size, blocks)


def _count(buckets: dict[_Bucket, list[int]], bucket: _Bucket, size: int, blocks: int) -> None:
    sums = buckets.setdefault(bucket, [0, 0])
    sums[0] += size
    sums[1] += blocks
