"""Completions from an engine: exactly so many tokens in and out, one after the other or all at once."""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx

from engines.model import SPECIAL, VOCABULARY

SECONDS = 120.0
"""For a whole answer."""


def tokens(count: int, seed: int) -> list[int]:
    """A prompt of `count` tokens; another seed shares no block with it."""
    return random.Random(seed).choices(range(len(SPECIAL), VOCABULARY), k=count)


def complete(url: str, prompt: Sequence[int], answer: int) -> int:
    """Asks for exactly `answer` tokens and gives the HTTP status. Raises httpx.HTTPError if none comes."""
    request = {"model": "tiny", "prompt": list(prompt), "max_tokens": answer, "ignore_eos": True}
    # Certificates are of no use here, and loading them takes each time 80 ms, in which no other thread gets on.
    with httpx.Client(timeout=SECONDS, trust_env=False, verify=False) as client:
        return client.post(f"{url}/v1/completions", json=request).status_code


@contextmanager
def at_once(url: str, prompts: Sequence[Sequence[int]], answer: int) -> Iterator[list[Future[int]]]:
    """Asks for all of them at the same time; yields the statuses to come, and ends when they have come."""
    with ThreadPoolExecutor(len(prompts), "load") as pool:
        yield [pool.submit(complete, url, prompt, answer) for prompt in prompts]
