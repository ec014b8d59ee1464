"""vLLM, V0 and V1.

Usage counts no block that is only cached. The capacity in tokens is a label, kv_cache_size_tokens, since 0.25; before,
blocks times their size, which is too much for hybrid models. Hits of a KV connector join the hits, but its queries not
the queries: it is asked only for tokens that the engine's own cache has not, which were counted there already.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from oomcast_collectors.engine.kinds import answers
from oomcast_collectors.engine.kinds.pools import alone, by_number, left, share
from oomcast_collectors.engine.kinds.rows import Extra, Row, Table
from oomcast_collectors.engine.kinds.samples import MAX_RANKS, Samples
from oomcast_collectors.engine.kinds.units import from_blocks
from oomcast_collectors.engine.reading import Pool, Reading

_CONFIG = "vllm:cache_config_info"
_SLEEP = "vllm:engine_sleep_state"
_RANK = "engine"
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_QUERIES = "vllm:prefix_cache_queries_total"
_TOKENS_SINCE = (0, 9)
_NUMBER = re.compile(r"[1-9][0-9]{0,15}")
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?!\d)")

_ROWS = (
    Row("usage", _USAGE),
    Row("queries", (_QUERIES, "vllm:gpu_prefix_cache_queries_total")),
    Row("hits", ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")),
    Row("hits", ("vllm:external_prefix_cache_hits_total",), label="external", also=True),
    Row("preemptions", ("vllm:num_preemptions_total",)),
    Row("running", ("vllm:num_requests_running",)),
    Row("waiting", ("vllm:num_requests_waiting_by_reason",), by="reason"),
    Row("waiting", ("vllm:num_requests_waiting",)),
    Row("finished", ("vllm:request_success_total",), by="finished_reason"),
    Row("http", ("http_requests_total",), by="status"),
    Row("rejected", ("vllm:admission_rejections_total",), by="reason"),
    Row("corrupted", ("vllm:corrupted_requests_total",)),
    Row("prompt_tokens", ("vllm:prompt_tokens_total",)),
    Row("generation_tokens", ("vllm:generation_tokens_total",)),
    Row("started", ("process_start_time_seconds",)),
)


def _finish(samples: Samples, reading: Reading) -> Reading:
    # The old counters alone are blocks up to 0.8 and tokens from 0.9 on; only the version tells which.
    if reading.cache_unit and _QUERIES not in samples:
        reading = replace(reading, cache_unit="")
    awake = [line.value for line in samples.named(_SLEEP) if line.labels.get("sleep_state") == "awake"]
    if 0.0 in awake:
        reading = replace(reading, asleep=True)
    return _with_config(samples, reading) if _CONFIG in samples else reading


def _with_config(samples: Samples, reading: Reading) -> Reading:
    """Capacity, block size and bytes, from the labels of cache_config_info."""
    configs = {line.labels.get(_RANK, ""): line.labels for line in samples.named(_CONFIG)[:MAX_RANKS]}
    usage = next((samples.values(name, _RANK, add=False, most=MAX_RANKS) for name in _USAGE if name in samples), {})
    ranks = sorted((usage.keys() | configs.keys()) - {""}, key=by_number) or [""]
    # One that names no rank holds for all of them; so does one alone, as there is where ranks have a server of theirs.
    common = configs.get("") or (next(iter(configs.values())) if len(configs) == 1 else {})
    pools = [_pool(rank, usage.get(rank), configs.get(rank) or common, len(ranks)) for rank in ranks]
    sizes = [_bytes(configs.get(rank) or common) for rank in ranks]
    tokens = sum(pool.capacity or 0 for pool in pools)
    capacity_bytes = sum(sizes) if all(sizes) else None
    return replace(
        reading,
        pools=alone(pools),
        capacity_bytes=capacity_bytes,
        bytes_per_token=capacity_bytes / tokens if capacity_bytes and tokens else None,
    )


def _pool(rank: str, usage: float | None, config: Mapping[str, str], ranks: int) -> Pool:
    block = _number(config, "effective_attention_block_size") or _number(config, "block_size")
    tokens = _number(config, "kv_cache_size_tokens")
    # Of the numbers only that of the blocks is a sum over all ranks.
    blocks = _number(config, "num_gpu_blocks") / ranks
    capacity = tokens or int(blocks * _number(config, "block_size"))
    # One block is never given out; usage is the share of the others.
    usable = capacity * (blocks - 1) / blocks if blocks > 1 else capacity
    usage = share(usage)
    return Pool(
        rank,
        usage,
        capacity or None,
        left(usable, usage) if capacity and usage is not None else None,
        exact=bool(tokens),
        block=block or None,
    )


def _bytes(config: Mapping[str, str]) -> int:
    """The memory that was set for the pool, 0 where none was or where a number of blocks took its place."""
    return 0 if _number(config, "num_gpu_blocks_override") else _number(config, "kv_cache_memory_bytes")


def _number(config: Mapping[str, str], label: str) -> int:
    """All labels are texts, and "None" where there is nothing; the set of them differs from release to release."""
    text = config.get(label, "")
    return int(text) if _NUMBER.fullmatch(text) else 0


def _version(answer: object, reading: Reading) -> Reading:
    reading = answers.version(answer, reading)
    match = _VERSION.match(reading.version)
    if match is None or reading.cache_unit or "queries" not in reading.counts:
        return reading
    if (int(match[1]), int(match[2])) < _TOKENS_SINCE:
        return from_blocks(reading)
    return replace(reading, cache_unit="tokens")


TABLE = Table(
    "vllm",
    _ROWS,
    rank=_RANK,
    lengths="vllm:request_prompt_tokens",
    answers="vllm:request_generation_tokens",
    latencies={"ttft": ("vllm:time_to_first_token_seconds",), "e2e": ("vllm:e2e_request_latency_seconds",)},
    paired="e2e",
    finish=_finish,
    more=frozenset({_CONFIG, _SLEEP}),
    extras=(Extra("/v1/models", answers.models), Extra("/version", _version)),
)
