"""What the metrics of each kind of engine mean: one table per kind."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from oomcast_collectors.engine.kinds import (
    dynamo,
    envoy,
    llamacpp,
    lmcache,
    lmdeploy,
    sglang,
    tgi,
    triton,
    trtllm,
    vllm,
)
from oomcast_collectors.engine.kinds.rows import Table
from oomcast_collectors.engine.reading import Kind, Reading
from oomcast_collectors.exposition_text import Line

_T = TypeVar("_T")

KINDS: Mapping[Kind, Table] = {
    module.TABLE.kind: module.TABLE
    for module in (vllm, sglang, trtllm, triton, lmdeploy, tgi, llamacpp, dynamo, lmcache, envoy)
}
"""Engines before what may be on their page beside them."""

NAMES: frozenset[str] = frozenset(name for table in KINDS.values() for name in table.names)
"""Every metric that any kind reads."""


def read(kinds: Sequence[Kind], lines: Iterable[Line]) -> Reading:
    """What a page says. kinds: what is on it, the engine first, not empty; what the others tell beside it is added
    where the engine itself tells nothing."""
    page = list(lines)
    reading, *others = [KINDS[kind].read(page) for kind in kinds]
    for other in others:
        reading = _filled(reading, other)
    return reading


def _filled(reading: Reading, other: Reading) -> Reading:
    # Queries and hits are there both or not at all, so they never come from two sources.
    return replace(
        reading,
        pools=reading.pools or other.pools,
        model=reading.model or other.model,
        started=_first(reading.started, other.started),
        max_model_len=reading.max_model_len or other.max_model_len,
        running=_first(reading.running, other.running),
        waiting=reading.waiting or other.waiting,
        counts={**other.counts, **reading.counts},
        lengths=reading.lengths or other.lengths,
        latencies={**other.latencies, **reading.latencies},
        paired=other.paired if _paired_alone(reading, other) else reading.paired,
        breaker_open=_first(reading.breaker_open, other.breaker_open),
        cache_unit=reading.cache_unit if "queries" in reading.counts else other.cache_unit,
    )


def _paired_alone(reading: Reading, other: Reading) -> bool:
    """Whether both the lengths and the latency that go together are those of the other."""
    return reading.lengths is None and other.paired not in reading.latencies


def _first(one: _T | None, other: _T | None) -> _T | None:
    return other if one is None else one
