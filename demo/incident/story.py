"""Who asks the engine for what: users whose prompts begin alike, then jobs with long ones, all from real traces."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from simulator import Request, mooncake

TRACES = Path(__file__).parents[2] / "tests" / "fixtures" / "traces"
CONVERSATION = TRACES / "mooncake-conversation-first-half.jsonl.gz"
SYNTHETIC = TRACES / "mooncake-synthetic.jsonl.gz"

TURNS = 24
"""Of the conversation that users repeat, the longest in the trace with prompts of less than 9,000 tokens."""

ABOVE_64K = (80_000, 100_000, 120_000)
"""Tokens: of the prompts above each the first in the trace is a job."""

ABOVE_128K = 131_072
MOST_JOBS = 9

TEMPLATE = 12
"""Spans of 512 tokens with which all jobs begin."""

ANSWER = 2000
"""Tokens of a job's answer: summaries of documents. None is done before the memory is."""

_LONG_IDS = 1 << 48
_APART = 1 << 24
"""Ids of spans: of one conversation or job from those of another."""


class Users:
    """Conversations from the trace, each by somebody else: what they share with each other is nothing.

    turns: of the conversation that they repeat, the first in the trace with so many.
    """

    def __init__(self, turns: int = TURNS) -> None:
        trace = mooncake(CONVERSATION)
        begins = Counter(one.block_ids[:2] for one in trace if len(one.block_ids) > 1)
        begin = next(ids for ids, count in begins.items() if count == turns)
        self._turns = [one for one in trace if one.block_ids[:2] == begin]
        self._conversations = 0

    def requests(self) -> Iterator[Request]:
        """What one user asks, one after the other: a conversation, then another one, without end."""
        while True:
            self._conversations += 1
            apart = self._conversations * _APART
            for turn in self._turns:
                yield replace(turn, block_ids=tuple(apart + one for one in turn.block_ids))


def jobs() -> Sequence[Request]:
    """Prompts above 64K and 128K tokens, shorter ones first, that share a template and nothing else."""
    return with_template([*lengths_above_64k(), *lengths_above_128k()][:MOST_JOBS])


def lengths_above_64k() -> list[int]:
    """Tokens of prompts in the traces, in ascending order; all of them between 64K and 128K."""
    lengths = [one.prompt_tokens for one in mooncake(CONVERSATION)]
    return [next(tokens for tokens in lengths if tokens > least) for least in ABOVE_64K]


def lengths_above_128k() -> list[int]:
    """The same of those that are longer; more than it takes to exhaust the memory."""
    return sorted(one.prompt_tokens for one in mooncake(SYNTHETIC) if one.prompt_tokens > ABOVE_128K)


def with_template(lengths: Sequence[int]) -> list[Request]:
    """Jobs with prompts of so many tokens, all of which begin alike."""
    return [_job(number, tokens) for number, tokens in enumerate(lengths)]


def _job(number: int, tokens: int) -> Request:
    own = _LONG_IDS + (number + 1) * _APART
    ids = (_LONG_IDS + span if span < TEMPLATE else own + span for span in range(-(-tokens // 512)))
    return Request(0, tokens, ANSWER, tuple(ids))
