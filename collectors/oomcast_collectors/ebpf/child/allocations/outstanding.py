"""What is outstanding of one process and kind: how much, how old, how fast it rises."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from oomcast_collectors.ebpf.child.allocations.ages import EPOCH_SHIFT, Births
from oomcast_collectors.ebpf.child.allocations.tables import Change, Counts

_MINUTE = 60.0


class Outstanding:
    """Not thread-safe. now: monotonic nanoseconds."""

    def __init__(self, base: Counts, now: int) -> None:
        """base: the counts at the beginning, from which on it is known what is outstanding."""
        self._births = Births(now)
        self._base = base
        self._taken_bytes = self._taken_blocks = 0
        self._past: deque[tuple[float, int]] = deque()
        self.bytes = self.blocks = 0

    def count(self, counts: Counts) -> None:
        """counts: as they stand."""
        self.bytes = max(counts.live_bytes - self._base.live_bytes - self._taken_bytes, 0)
        self.blocks = max(counts.live_blocks - self._base.live_blocks - self._taken_blocks, 0)

    def take(self, size: int, born: int, now: int) -> None:
        """A block was taken out of the program's table, which its counts do not tell."""
        self._taken_bytes += size
        self._taken_blocks += 1
        self._births.add(born >> EPOCH_SHIFT, -size, -1, now)

    def change(self, done: Iterable[Change], since: Iterable[Change], now: int) -> None:
        """Once in a second. done: changes that come once; since: such that come again."""
        for one in done:
            self._births.add(one.epoch, one.bytes, one.blocks, now)
        self._births.recent([one[2:] for one in since], now)
        self._births.settle(now)
        seconds = now / 1e9
        self._past.append((seconds, self.bytes))
        while len(self._past) > 1 and self._past[1][0] <= seconds - _MINUTE:
            self._past.popleft()

    def older(self, seconds: float, now: int) -> tuple[int, int]:
        """(bytes, blocks); see Births."""
        return self._births.older(seconds, now)

    def classes(self, ages: Sequence[float], now: int) -> Iterator[tuple[str, int, int]]:
        """(lower bound of the age in seconds, bytes, blocks), from the youngest on; all of it together."""
        sums = [(self.bytes, self.blocks), *(self.older(age, now) for age in ages), (0, 0)]
        for at, age in enumerate((0.0, *ages)):
            size, blocks = (max(more - less, 0) for more, less in zip(sums[at], sums[at + 1], strict=True))
            yield f"{age:g}", size, blocks

    def growth(self) -> float | None:
        """Bytes per second over the last minute; None before there is one."""
        if not self._past or self._past[-1][0] - self._past[0][0] < _MINUTE:
            return None
        (began, before), (ended, after) = self._past[0], self._past[-1]
        return (after - before) / (ended - began)
