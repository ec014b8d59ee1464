"""The GPU's memory: what the engine takes of it, block by block, until there is none left."""

import os

from collectors.gpu.driver import FakeDriver
from simulator.blocks import Pool

GB = 10**9
TOTAL = 80 * GB
RESERVED = 400_000_000
"""Bytes that the driver keeps."""

WEIGHTS = 15_230_000_000
WORKSPACE = 870_000_000
"""Bytes of Qwen2.5-7B in bfloat16, and of the CUDA context, activations and libraries."""

BYTES_PER_TOKEN = 57_344
"""Of its KV cache, in bfloat16: 28 layers, 4 KV heads of 128, keys and values."""

BLOCK = 16
"""Tokens."""

FIRST_TOKENS = 36_600
"""Of the KV cache, committed at the start."""


class OutOfMemory(Exception):
    """An allocation failed: the GPU has no memory left."""


class OnDemand(Pool):
    """A pool that commits a block's memory when it is first needed, and keeps it; what has memory is taken first."""

    def __init__(self, blocks: int, first: int, most: int) -> None:
        """first: blocks that are committed at the start. most: that fit into memory."""
        super().__init__(blocks)
        self._fresh = list(range(blocks - 1, first, -1))
        self._most = most
        for block in self._fresh:
            del self._free[block]

    @property
    def free(self) -> int:
        return len(self._free) + len(self._fresh)

    @property
    def usage(self) -> float:
        return 1 - self.free / self._usable

    @property
    def committed(self) -> int:
        """Blocks that have memory."""
        return self._usable - len(self._fresh)

    def take(self, count: int) -> list[int]:
        """Raises OutOfMemory with all of the memory committed."""
        again = min(count, len(self._free))
        taken = super().take(again)
        for _ in range(count - again):
            if self.committed >= self._most:
                raise OutOfMemory
            block = self._fresh.pop()
            self._owners[block] = 1
            taken.append(block)
        return taken


class Gpu:
    """One GPU, of which the driver tells what the engine's process has. driver: has one GPU, and is written here."""

    def __init__(self, driver: FakeDriver, blocks: int) -> None:
        room = TOTAL - RESERVED - WEIGHTS - WORKSPACE
        self.pool = OnDemand(blocks, FIRST_TOKENS // BLOCK, room // (BLOCK * BYTES_PER_TOKEN))
        self._driver = driver
        driver.gpus[0].set(name="NVIDIA A100-SXM4-80GB", total=TOTAL, reserved=RESERVED, addressing="none")
        self.tell()

    @property
    def used(self) -> int:
        """Bytes."""
        return WEIGHTS + WORKSPACE + self.pool.committed * BLOCK * BYTES_PER_TOKEN

    def tell(self) -> None:
        """Lets the driver say what is used now."""
        self._driver.gpus[0].set(used=self.used, proc=(os.getpid(), self.used))
        self._driver.write()

    def empty(self) -> None:
        """The engine's process is gone."""
        self._driver.gpus[0].set(used=0, proc=None)
        self._driver.write()
