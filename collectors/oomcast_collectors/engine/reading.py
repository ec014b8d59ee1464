"""What one look at an inference engine found, whatever its kind: plain values in base units.

kinds/ makes these from an engine's own metrics; states.py, hits.py and lengths.py draw conclusions from two of them;
nothing else knows an engine's names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from oomcast.slo import Objective

Kind = Literal["vllm", "sglang", "tgi", "trtllm", "triton", "llamacpp", "lmdeploy", "lmcache", "dynamo", "envoy"]

Count = Literal[
    "queries",  # tokens looked up in the prefix cache
    "hits",  # of those, tokens that were found
    "preemptions",  # requests thrown out for want of KV memory; SGLang calls it retraction
    "evicted",  # tokens dropped from the prefix cache
    "prompt_tokens",
    "generation_tokens",
    "finished",  # requests by the engine's own reason
    "http",  # responses by code (503) or class (5xx), whichever the engine tells
    "rejected",  # requests refused before admission, by reason
    "short",  # responses of at most so many tokens; the label says how many
    "corrupted",  # responses with NaN logits
    "retries",  # of a gateway
]
"""Counters since the engine started. Each is by one label value, "" where there is none."""


class Pool(NamedTuple):
    """The KV memory of one data-parallel rank. rank: "" where the engine has one pool only.

    usage: 0 to 1, without what is cached and can be evicted. capacity, available: tokens; available counts what can be
    evicted. exact: whether capacity is what the engine says, not blocks times their size. block: tokens per block.
    """

    rank: str = ""
    usage: float | None = None
    capacity: int | None = None
    available: int | None = None
    exact: bool = True
    block: int | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """A histogram of prompt lengths in tokens or latencies in seconds. buckets: (upper bound, cumulative count), the
    last bound is infinite."""

    buckets: tuple[tuple[float, float], ...]
    sum: float
    count: float


@dataclass(frozen=True, slots=True)
class Reading:
    """None, or a key that is missing: the engine does not tell.

    model: the name it serves under. version: its own. started: UTC seconds at which the engine's process started.
    max_model_len: tokens of the longest request that it accepts. capacity_bytes, bytes_per_token: of all pools, but of
    one tensor-parallel rank; no engine tells how many there are.
    cache_unit: what the engine counts queries and hits in: "tokens"; "blocks", which were converted to tokens; "" where
    that is not known: their ratio holds, the numbers may be blocks.
    running: requests being worked on. waiting: requests by reason, "" where the engine names none.
    latencies: times to the first token, and until the end. paired: the one of them that is counted together with the
    length of the prompt, so that both gain the same requests from look to look.
    breaker_open: of a gateway, whether a circuit breaker is open. asleep: whether it was put to sleep.
    """

    kind: Kind
    pools: tuple[Pool, ...] = ()
    model: str = ""
    version: str = ""
    started: float | None = None
    max_model_len: int | None = None
    capacity_bytes: int | None = None
    bytes_per_token: float | None = None
    running: float | None = None
    waiting: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[Count, Mapping[str, float]] = field(default_factory=dict)
    lengths: Lengths | None = None
    latencies: Mapping[Objective, Lengths] = field(default_factory=dict)
    paired: Objective | None = None
    breaker_open: bool | None = None
    asleep: bool = False
    cache_unit: Literal["tokens", "blocks", ""] = ""

    def count(self, what: Count) -> float | None:
        """The sum over its label values."""
        values = self.counts.get(what)
        return sum(values.values()) if values else None
