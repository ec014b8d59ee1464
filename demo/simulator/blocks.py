"""The KV cache: its blocks, who has them, and what they still hold."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice


class Pool:
    """Blocks 1 to `blocks` - 1; block 0 stands for nothing and is never given out.

    Every block is either owned, by one or more, or free. Free ones are taken from the front of a queue. What is given
    back joins its end if it holds the tokens of a known prefix, so that the one not used for longest goes first, and
    its front if it does not. A free block keeps what it holds, and can be found by it, until it is taken.
    """

    def __init__(self, blocks: int) -> None:
        self._usable = blocks - 1
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, blocks))
        self._owners = [0] * blocks
        self._keys: list[int | None] = [None] * blocks
        # Two that computed the same prefix at the same time have a block each; the older one is found.
        self._holding: dict[int, list[int]] = {}
        self.cached = 0
        """Free blocks that hold something."""

    @property
    def free(self) -> int:
        """Blocks that nobody owns, whatever they hold."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """The share of the blocks that somebody owns, 0 to 1."""
        return 1.0 - len(self._free) / self._usable

    def find(self, keys: Sequence[int], most: int) -> list[int]:
        """The blocks that hold these prefixes, `most` at most, up to the first that none holds."""
        found = []
        for key in islice(keys, most):
            blocks = self._holding.get(key)
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def idle(self, blocks: Sequence[int]) -> int:
        """How many of these are free."""
        owners = self._owners
        return sum(not owners[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """One owner more for each of these, found before."""
        owners = self._owners
        for block in blocks:
            if not owners[block]:
                del self._free[block]
                self.cached -= 1
            owners[block] += 1

    def take(self, count: int) -> list[int]:
        """So many free blocks, which hold nothing any more. Raises KeyError if there are not as many."""
        owners, keys, pop = self._owners, self._keys, self._free.popitem
        taken = []
        for _ in range(count):
            block, _ = pop(last=False)
            taken.append(block)
            owners[block] = 1
            if keys[block] is not None:
                self._forget(block)
        return taken

    def hold(self, blocks: Sequence[int], keys: Sequence[int]) -> None:
        """Notes that blocks, owned and holding nothing so far, are full with the prefixes of these keys."""
        for block, key in zip(blocks, keys, strict=True):
            self._keys[block] = key
            self._holding.setdefault(key, []).append(block)

    def give_back(self, blocks: Sequence[int]) -> None:
        """One owner less for each of a sequence's blocks. Its last one is the first to be taken: without the ones
        before, it is of no use."""
        empty = []
        owners = self._owners
        for block in reversed(blocks):
            owners[block] -= 1
            if owners[block]:
                continue
            if self._keys[block] is None:
                empty.append(block)
            else:
                self._free[block] = None
                self.cached += 1
        for block in reversed(empty):
            self._free[block] = None
            self._free.move_to_end(block, last=False)

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        assert key is not None
        self._keys[block] = None
        self.cached -= 1
        holding = self._holding[key]
        if len(holding) == 1:
            del self._holding[key]
        else:
            holding.remove(block)
