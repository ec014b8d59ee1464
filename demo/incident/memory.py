"""The GPU's memory: what the engine takes of it, block by block, until there is none left."""

import os

from collectors.gpu.driver import FakeDriver, Section
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
    """One GPU, of which the driver tells what the engine's process has.

    driver: is written here. first_tokens: committed at the start. pid: of the process, by default this one. number: of
    the driver's GPUs.
    """

    def __init__(
        self,
        driver: FakeDriver,
        blocks: int,
        *,
        first_tokens: int = FIRST_TOKENS,
        pid: int | None = None,
        number: int = 0,
    ) -> None:
        room = TOTAL - RESERVED - WEIGHTS - WORKSPACE
        self.pool = OnDemand(blocks, first_tokens // BLOCK, room // (BLOCK * BYTES_PER_TOKEN))
        self._driver = driver
        self._gpu = driver.gpus[number]
        self._pid = os.getpid() if pid is None else pid
        self._told = -1
        describe(self._gpu)
        self.tell()

    @property
    def used(self) -> int:
        """Bytes."""
        return WEIGHTS + WORKSPACE + self.pool.committed * BLOCK * BYTES_PER_TOKEN

    def tell(self) -> None:
        """Lets the driver say what is used now."""
        used = self.used
        if used != self._told:
            self._told = used
            self._gpu.set(used=used, proc=(self._pid, used), ramp=None)
            self._driver.write()

    def empty(self) -> None:
        """The engine's process is gone."""
        self._told = -1
        self._gpu.set(used=0, proc=None, ramp=None)
        self._driver.write()


def describe(gpu: Section) -> None:
    """Makes it one of 80 GB."""
    gpu.set(name="NVIDIA A100-SXM4-80GB", total=TOTAL, reserved=RESERVED, addressing="none")
