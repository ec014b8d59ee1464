"""Samples of prompt lengths, and the histograms that engines make of them."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oomcast_collectors.engine.lognormal import Bin

Floats = NDArray[np.float64]

_ENGINES = Path(__file__).parent.parent.parent / "fixtures" / "engines"


def captured(name: str, metric: str) -> tuple[float, ...]:
    """The upper bounds of a metric's buckets in the recorded page of that name, the last one infinite."""
    text = (_ENGINES / f"{name}.prom").read_text()
    return tuple(float(bound) for bound in re.findall(rf'^{metric}_bucket\{{.*?le="([^"]+)"', text, re.MULTILINE))


VLLM = captured("vllm-cpu-0.32.0-idle", "vllm:request_prompt_tokens")
SGLANG = captured("sglang-cpu-0.5.23-idle", "sglang:prompt_tokens_histogram")
TGI = (*(32_768 * (n + 1) / 100 for n in range(100)), math.inf)
"""A hundredth of max_input_tokens each, here of 32,768."""


def sample(mu: float, sigma: float, longest: float, size: int, seed: int) -> Floats:
    """Whole tokens from a log-normal cut off above `longest`."""
    drawn = np.exp(np.random.default_rng(seed).normal(mu, sigma, 60 * size))
    kept = np.ceil(drawn[drawn <= longest])[:size]
    assert len(kept) == size
    return kept


def histogram(lengths: Floats, bounds: Sequence[float]) -> list[Bin]:
    ends = [0.0, *bounds]
    at_most = np.searchsorted(np.sort(lengths), ends, side="right")
    return [Bin(low, high, float(n)) for (low, high), n in zip(pairwise(ends), np.diff(at_most), strict=True)]
