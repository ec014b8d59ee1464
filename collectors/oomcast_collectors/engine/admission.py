"""What still fits into an engine's KV memory, and how full it is, from one reading."""

import math

from oomcast.contract import Level
from oomcast_collectors.engine.reading import Pool, Reading

_ROUNDING = 1e-3
"""Tokens: capacity times (1 - usage) misses a whole number of tokens by less."""

_NOISE = 0.02
"""Share of the capacity: some engines tell usage in steps of 0.01, and every request makes it rise for a while."""


def headroom(reading: Reading) -> int | None:
    """Tokens that fit now, of all pools together; None where one of them does not tell."""
    free = [_free(pool) for pool in reading.pools]
    known = [tokens for tokens in free if tokens is not None]
    return sum(known) if known and len(known) == len(free) else None


def capacity(reading: Reading) -> int | None:
    """Tokens of all pools together; None where one of them does not tell."""
    known = [pool.capacity for pool in reading.pools if pool.capacity is not None]
    return sum(known) if known and len(known) == len(reading.pools) else None


def usage(reading: Reading) -> float | None:
    """Of the fullest pool, 0 to 1; None where none tells."""
    return max((used for pool in reading.pools if (used := _usage(pool)) is not None), default=None)


def largest_request(reading: Reading) -> int | None:
    """Tokens of the largest request, prompt and answer, that would be admitted now.

    A request lives on one rank, in whole blocks: the pool with most room decides. None where no pool tells.
    """
    rooms = (_whole_blocks(free, pool) for pool in reading.pools if (free := _free(pool)) is not None)
    room = max(rooms, default=None)
    return room if room is None or reading.max_model_len is None else min(room, reading.max_model_len)


def longest_fits(reading: Reading) -> bool | None:
    """Whether a request of max_model_len fits into the largest pool while that is empty; None where that is unknown."""
    if reading.max_model_len is None or not reading.pools:
        return None
    known = [_whole_blocks(pool.capacity, pool) for pool in reading.pools if pool.capacity is not None]
    if max(known, default=0) >= reading.max_model_len:
        return True
    return False if len(known) == len(reading.pools) else None


def kv_level(engine: str, reading: Reading | None, restarts: int) -> Level | None:
    """The KV memory of all pools as a resource, in tokens; None while the engine is down or tells no usage.

    Where the capacity is not told, capacity is 1.0 and used is the usage of the fullest pool.
    """
    if reading is None:
        return None
    labels = (("engine", engine),)
    whole, free = capacity(reading), headroom(reading)
    if whole and free is not None:
        return Level("kv_cache", labels, max(whole - free, 0), whole, restarts, noise=_NOISE * whole)
    used = usage(reading)
    return None if used is None else Level("kv_cache", labels, used, 1.0, restarts, noise=_NOISE)


def _free(pool: Pool) -> int | None:
    if pool.available is not None:
        return max(pool.available if pool.capacity is None else min(pool.available, pool.capacity), 0)
    used = _usage(pool)
    if pool.capacity is None or used is None:
        return None
    return math.floor(pool.capacity * (1 - used) + _ROUNDING)


def _usage(pool: Pool) -> float | None:
    if pool.usage is not None and not math.isnan(pool.usage):
        return min(max(pool.usage, 0.0), 1.0)
    if pool.available is None or not pool.capacity:
        return None
    return min(max(1 - pool.available / pool.capacity, 0.0), 1.0)


def _whole_blocks(tokens: int, pool: Pool) -> int:
    return tokens - tokens % pool.block if pool.block else tokens
