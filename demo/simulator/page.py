"""The text of /metrics, in the names, labels and buckets of vLLM 0.32."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from simulator.config import Config
from simulator.histograms import Histogram
from simulator.tally import Tally

VERSION = "0.32.0"
"""Of the vLLM whose page this is like."""

_NOT_SUCCEEDED = ("stop", "abort", "error", "repetition")


class Look(NamedTuple):
    """What the scheduler had at the end of a step. usage: 0 to 1; queries, hits: tokens."""

    usage: float
    running: int
    waiting: int
    queries: int
    hits: int
    preemptions: int


def text(config: Config, look: Look, tally: Tally, started: float) -> str:
    """The whole page. started: UTC seconds at which the process began."""
    page = _Page(config.model)
    page.plain("process_start_time_seconds", "gauge", "When the process began, in seconds since the epoch.", started)
    _scheduler(page, look)
    _tokens(page, look, tally)
    _requests(page, tally)
    for name, about, histogram in _histograms(tally):
        page.histogram(f"vllm:{name}", about, histogram)
    _config(page, config)
    _http(page, tally)
    return "".join(page.lines)


class _Page:
    def __init__(self, model: str) -> None:
        self.lines: list[str] = []
        self._model = {"model_name": model}
        self._engine = {"engine": "0", **self._model}

    def family(self, name: str, kind: str, about: str) -> None:
        self.lines.append(f"# HELP {name} {about}\n# TYPE {name} {kind}\n")

    def sample(self, name: str, labels: Mapping[str, str], value: float) -> None:
        inside = ",".join(f'{label}="{_escaped(labels[label])}"' for label in sorted(labels))
        self.lines.append(f"{name}{{{inside}}} {float(value)}\n" if inside else f"{name} {float(value)}\n")

    def plain(self, name: str, kind: str, about: str, value: float) -> None:
        """One that is not of the engine, and has no labels."""
        self.family(name, kind, about)
        self.sample(name, {}, value)

    def one(self, name: str, kind: str, about: str, value: float) -> None:
        self.family(name, kind, about)
        self.sample(name, self._engine, value)

    def by(self, name: str, kind: str, about: str, label: str, values: Mapping[str, float], rank: bool = True) -> None:
        """One value for each value of a label. rank: whether they are told for each engine of the process."""
        self.family(name, kind, about)
        for key, value in values.items():
            self.sample(name, {**(self._engine if rank else self._model), label: key}, value)

    def histogram(self, name: str, about: str, histogram: Histogram) -> None:
        self.family(name, "histogram", about)
        for end, count in histogram.buckets():
            self.sample(f"{name}_bucket", {**self._engine, "le": end}, count)
        self.sample(f"{name}_count", self._engine, histogram.count)
        self.sample(f"{name}_sum", self._engine, histogram.sum)


def _scheduler(page: _Page, look: Look) -> None:
    page.one("vllm:num_requests_running", "gauge", "Requests that are computed.", look.running)
    page.one("vllm:num_requests_waiting", "gauge", "Requests that wait.", look.waiting)
    reasons = {"capacity": look.waiting, "deferred": 0}
    page.by("vllm:num_requests_waiting_by_reason", "gauge", "Requests that wait, by reason.", "reason", reasons)
    page.one("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache that requests have, 1 for all.", look.usage)


def _tokens(page: _Page, look: Look, tally: Tally) -> None:
    counters = {
        "prefix_cache_queries": ("Tokens looked for in the prefix cache.", look.queries),
        "prefix_cache_hits": ("Tokens found in the prefix cache.", look.hits),
        # There is no connector to another cache.
        "external_prefix_cache_queries": ("Tokens looked for in other engines' caches.", 0),
        "external_prefix_cache_hits": ("Tokens found in other engines' caches.", 0),
        "num_preemptions": ("Requests that lost their blocks to another.", look.preemptions),
        "prompt_tokens": ("Tokens of prompts that were read.", tally.prompt_tokens),
        "prompt_tokens_cached": ("Those of them that were cached.", tally.cached_tokens),
        "generation_tokens": ("Tokens of answers.", tally.generation_tokens),
    }
    for name, (about, value) in counters.items():
        page.one(f"vllm:{name}_total", "counter", about, value)
    computed = tally.prompt_tokens - tally.cached_tokens
    sources = {"local_compute": computed, "local_cache_hit": tally.cached_tokens, "external_kv_transfer": 0}
    name = "vllm:prompt_tokens_by_source_total"
    page.by(name, "counter", "Tokens of prompts, by where they came from.", "source", sources)


def _requests(page: _Page, tally: Tally) -> None:
    # Every answer has exactly as many tokens as its request asks for.
    reasons = {"length": tally.succeeded, **dict.fromkeys(_NOT_SUCCEEDED, 0)}
    about = "Requests that were answered, by why the answer ended."
    page.by("vllm:request_success_total", "counter", about, "finished_reason", reasons)
    limits = {"max_num_queued_reqs": tally.rejected, "max_num_queued_tokens": 0}
    about = "Requests that were turned away, by the limit."
    page.by("vllm:admission_rejections_total", "counter", about, "reason", limits, rank=False)


def _histograms(tally: Tally) -> Iterator[tuple[str, str, Histogram]]:
    yield "request_prompt_tokens", "Tokens of a prompt.", tally.lengths
    yield "request_generation_tokens", "Tokens of an answer.", tally.answers
    yield "request_max_num_generation_tokens", "Tokens of the longest answer of a request.", tally.answers
    yield "request_params_max_tokens", "Tokens that were asked for.", tally.answers
    yield "request_prefill_kv_computed_tokens", "Tokens of a prompt that were not cached.", tally.computed
    yield "iteration_tokens_total", "Tokens of a step.", tally.step_tokens
    yield "time_to_first_token_seconds", "From arrival to the first token.", tally.to_first_token
    yield "inter_token_latency_seconds", "From a token to the next.", tally.between_tokens
    yield "request_time_per_output_token_seconds", "From a token to the next, a request's mean.", tally.per_token
    yield "e2e_request_latency_seconds", "From arrival to the last token.", tally.whole
    yield "request_queue_time_seconds", "From arrival to the first step.", tally.queued
    yield "request_inference_time_seconds", "From the first step to the last token.", tally.inference
    yield "request_prefill_time_seconds", "From the first step to the first token.", tally.prefill
    yield "request_decode_time_seconds", "From the first token to the last.", tally.decode
    yield "request_num_preemptions", "How often a request was preempted.", tally.preemptions


def _config(page: _Page, config: Config) -> None:
    capacity = config.blocks * config.block_size
    labels = {
        "engine": "0",
        "block_size": config.block_size,
        "effective_attention_block_size": config.block_size,
        "cache_dtype": "auto",
        "enable_prefix_caching": True,
        "kv_cache_max_concurrency": capacity / config.max_model_len,
        "kv_cache_memory_bytes": None,
        "kv_cache_size_tokens": capacity,
        "num_gpu_blocks": config.blocks,
        "num_gpu_blocks_override": config.blocks,
        "sliding_window": None,
    }
    page.family("vllm:cache_config_info", "gauge", "How the KV cache was set up.")
    page.sample("vllm:cache_config_info", {name: str(value) for name, value in labels.items()}, 1)


def _http(page: _Page, tally: Tally) -> None:
    page.family("http_requests_total", "counter", "Responses by method, class of status and path.")
    for status, count in tally.http.items():
        page.sample("http_requests_total", {"handler": "/v1/completions", "method": "POST", "status": status}, count)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
