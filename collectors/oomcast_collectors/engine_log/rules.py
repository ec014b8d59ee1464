"""What is looked for in the logs of engines: the shipped rules. Texts are those that the engines print."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["critical", "warning", "info"]

REQUEST_MARKS = (
    "Received request ",
    " details: prompt: ",
    "Generated response ",
    "Receive: obj=",
    "Receive OpenAI: obj=",
    "Finish: obj=",
)
"""Lines in which vLLM and SGLang log a request: what follows is a user's text, and says nothing of the engine."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line.

    contains: literals, one of which the line has. regex: what it matches as well, "" for nothing more. numbers: by
    name, a regex whose first group that matched is the number. severity: "info" is told as an event and not counted.
    """

    name: str
    contains: tuple[str, ...]
    severity: Severity = "warning"
    regex: str = ""
    numbers: Mapping[str, str] = field(default_factory=dict)


_SIZE = r"([\d.]{1,16} (?:bytes|[KMGT]iB))"
_TOKENS = r"(\d[\d,]{0,18}\d|\d)"
_INF = r"(?:[Ii]nf(?:inity)?|INF|[Nn]a[Nn]|NAN)"
_KIND = (
    r"(?:[Nn]umeric(?:al)?|[Ii]nteger|[Aa]rithmetic|[Ff]loat|fp16|fp8|bf16|half|softmax|attention|attn|logits?"
    r"|[Gg]radient|grad|activation|int32|int64|index)"
)

_OUT_OF_MEMORY = (
    Rule(
        "cuda_out_of_memory",
        (
            "CUDA out of memory",
            "HIP out of memory",
            "OutOfMemoryError: ",
            "CUDA error: out of memory",
            "cudaMalloc failed: out of memory",
            "CUDA runtime error in ",
        ),
        "critical",
        r"[Oo]ut of memory|OutOfMemoryError: ",
        {
            "tried_bytes": rf"Tried to allocate {_SIZE}|allocating {_SIZE} on device",
            "total_bytes": rf"total capacity of {_SIZE}|{_SIZE} total capacity",
            "free_bytes": rf"of which {_SIZE} is free|; {_SIZE} free",
            "gpu": r"GPU (\d{1,4})\b",
        },
    ),
    Rule("cublas_alloc_failed", ("CUBLAS_STATUS_ALLOC_FAILED",), "critical"),
    Rule("illegal_memory_access", ("an illegal memory access was encountered",), "critical"),
    Rule("prefill_out_of_memory", ("Prefill out of memory",), "critical"),
    Rule("decode_out_of_memory", ("Decode out of memory",), "critical"),
    Rule(
        "pool_out_of_memory",
        (
            "alloc_req_slots runs out of memory",
            "Not enough memory. Please try to increase --mem-fraction-static",
            "No space left for only one request",
            "retract_decode: aborted request",
        ),
        "critical",
    ),
    Rule(
        "warmup_out_of_memory",
        ("Not enough memory to handle ",),
        "critical",
        numbers={"tokens": r"handle (\d{1,12}) prefill tokens|max_total_tokens=(\d{1,12})"},
    ),
)

_KV_CACHE = (
    Rule(
        "kv_cache_full",
        (
            "failed to find a memory slot for batch of size",
            "failed to find free space in the KV cache",
            "KV cache is full",
        ),
    ),
    Rule(
        "kv_cache_retraction",
        ("KV cache pool is full. Retract requests.",),
        numbers={
            "retracted_requests": r"#retracted_reqs: (\d{1,9})",
            "gained_tokens": r"#new_tokens_gained: (\d{1,12})",
            "new_token_ratio": r"#new_token_ratio: [\d.]{1,12} -> ([\d.]{1,12})",
        },
    ),
    Rule("kv_cache_preemption", ("is preempted by PreemptionMode",)),
    Rule(
        "no_memory_for_cache",
        (
            "No available memory for the cache blocks",
            "larger than the available KV cache memory",
            "larger than the maximum number of tokens that can be stored in KV cache",
        ),
        "critical",
        numbers={
            "max_model_len": r"max seq len \((\d{1,12})\)",
            "needed_bytes": r"\(([\d.]{1,16} Gi?B) KV cache is needed",
            "available_bytes": r"available KV cache memory \(([\d.]{1,16} Gi?B)\)",
            "estimated_max_model_len": r"estimated maximum model length is (\d{1,12})",
            "capacity_tokens": r"stored in KV cache \((\d{1,12})\)",
        },
    ),
    Rule(
        "kv_cache_too_small",
        ("fewer than --context-length",),
        numbers={
            "capacity_tokens": r"KV pool holds (\d{1,12}) tokens",
            "context_length": r"--context-length (\d{1,12})",
        },
    ),
    Rule("prompt_cache_full", ("exceeds cache size limit", "failed to allocate memory for prompt cache state")),
    Rule("memory_leak", ("memory leak detected!",), "critical"),
)

_DEATH = (
    Rule(
        "engine_dead",
        (
            "EngineDeadError",
            "EngineCore encountered an issue",
            "EngineCore encountered a fatal error",
            "died unexpectedly",
            "MQLLMEngine is already dead",
            "Scheduler hit an exception",
        ),
        "critical",
        r"EngineDeadError|EngineCore encountered|process EngineCore.{0,40} died|Worker proc .{0,80} died|already dead"
        r"|Scheduler hit",
    ),
    Rule(
        "engine_start_failed",
        ("Engine core initialization failed", "Executor creation failed", "Method Warmup encountered an error"),
        "critical",
    ),
    Rule("panic", (" panicked at ",), "critical", r"thread '.{0,64}' (?:\(\d{1,20}\) )?panicked at "),
)

_NUMERICS = (
    Rule("attn_grad_overflow", ("attn_grad_overflow: inf detected in softmax denominator",), "critical"),
    Rule("nan_detected", ("NaN detected", "NaNs detected in logits", "probability tensor contains either"), "critical"),
    # The words are common in anything but English: only near what makes them a finding, and not where a rule above is.
    Rule(
        "inf_or_nan",
        ("NaN", "nan ", "inf ", "Inf "),
        regex=r"(?<!attn_grad_overflow: )\b(?:[Ii]nf|INF|nan|NAN)s? detected"
        rf"|\b{_INF}s?\s?(?:/|or|and)\s?{_INF}s? (?:encountered|found|in )"
        rf"|\b{_INF}s? (?:encountered|found|in (?:the )?(?:logits|loss|softmax|output|hidden|attention|weights|tensor))"
        rf"|\b(?:contains?|detected|encountered|found|produced) (?:an? |any )?{_INF}s?\b",
    ),
    Rule(
        "overflow",
        ("overflow", "Overflow"),
        regex=rf"\b{_KIND}[ _-]overflow(?!ing)|\b[Oo]verflow (?:detected|encountered|error)|\bOverflowError\b",
    ),
)

_SERVING = (
    Rule(
        "context_exceeded",
        (
            "Context size has been exceeded",
            "exceeds the available context size",
            "input prompt is too big compared to KV size",
            "maximum context length is ",
        ),
        numbers={"max_model_len": r"maximum context length is (\d{1,12})"},
    ),
    Rule("overloaded", ("Model is overloaded",)),
    Rule("no_free_slots", ("No free slots",)),
)

_INFORMATION = (
    Rule(
        "kv_cache_size",
        ("KV cache size: ", "KV Cache is allocated.", "Setting max batch total tokens to "),
        "info",
        numbers={
            "capacity_tokens": rf"KV cache size: {_TOKENS} tokens|#tokens: {_TOKENS}|total tokens to {_TOKENS}",
            "request_tokens": rf"concurrency for {_TOKENS} tokens",
            "max_concurrency": r"per request: ([\d.]{1,12})x",
        },
    ),
    Rule(
        "kv_cache_memory",
        ("Available KV cache memory: ",),
        "info",
        numbers={"available_bytes": r"cache memory: (-?[\d.]{1,16} GiB)"},
    ),
)

SHIPPED: tuple[Rule, ...] = (
    *(*_OUT_OF_MEMORY, *_KV_CACHE, *_DEATH),
    *(*_NUMERICS, *_SERVING, *_INFORMATION),
)
