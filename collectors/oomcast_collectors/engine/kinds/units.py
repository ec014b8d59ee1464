"""Blocks of KV memory as tokens."""

from dataclasses import replace

from oomcast_collectors.engine.reading import Count, Reading

_CACHE: tuple[Count, ...] = ("queries", "hits")


def from_blocks(reading: Reading) -> Reading:
    """The reading whose queries and hits were blocks, in tokens; without them where the size of a block is not known or
    differs between pools."""
    sizes = {pool.block for pool in reading.pools}
    size = sizes.pop() if len(sizes) == 1 else None
    counts = {count: values for count, values in reading.counts.items() if count not in _CACHE or size}
    if size is None:
        return replace(reading, counts=counts, cache_unit="")
    for count in _CACHE:
        if count in counts:
            counts[count] = {label: value * size for label, value in counts[count].items()}
    return replace(reading, counts=counts, cache_unit="blocks")
