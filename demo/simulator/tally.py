"""What the engine has done so far: the counters and histograms of its page."""

from collections import Counter
from dataclasses import dataclass

from simulator import histograms
from simulator.histograms import Histogram
from simulator.scheduler import Sequence
from simulator.trace import Request


@dataclass(frozen=True, slots=True)
class Finished:
    """How a request ended. status: 200, 400 (too long a prompt), 500 (the engine failed) or 503 (its queue was full).

    output_tokens: given to the client: all or none. cached_tokens: of the prompt, found in the cache. arrived,
    first_token (None without one), ended: virtual seconds.
    """

    request: Request
    status: int
    output_tokens: int
    cached_tokens: int
    arrived: float
    first_token: float | None
    ended: float
    preemptions: int


class Tally:
    """http: responses by class, of what was seen. lengths .. preemptions: histograms; their names are in page.py."""

    def __init__(self, max_model_len: int) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.succeeded = 0
        self.rejected = 0
        self.http: Counter[str] = Counter()
        by_length = histograms.lengths(max_model_len)
        self.lengths = Histogram(by_length)
        self.answers = Histogram(by_length)
        self.computed = Histogram(by_length)
        self.step_tokens = Histogram(histograms.OF_A_STEP)
        self.to_first_token = Histogram(histograms.TO_FIRST_TOKEN)
        self.between_tokens = Histogram(histograms.BETWEEN_TOKENS)
        self.per_token = Histogram(histograms.BETWEEN_TOKENS)
        self.whole = Histogram(histograms.SECONDS)
        self.queued = Histogram(histograms.SECONDS)
        self.inference = Histogram(histograms.SECONDS)
        self.prefill = Histogram(histograms.SECONDS)
        self.decode = Histogram(histograms.SECONDS)
        self.preemptions = Histogram(histograms.PREEMPTIONS)

    def token(self, sequence: Sequence, now: float) -> None:
        """A sequence has its next token, perhaps its first."""
        self.generation_tokens += 1
        if sequence.last_token is None:
            self.prompt_tokens += sequence.request.prompt_tokens
            self.cached_tokens += sequence.cached
            self.to_first_token.observe(now - sequence.arrived)
            sequence.first_token = now
        else:
            self.between_tokens.observe(now - sequence.last_token)
        sequence.last_token = now

    def answered(self, sequence: Sequence, now: float) -> None:
        """A sequence has its last token."""
        request = sequence.request
        first, admitted = sequence.first_token, sequence.admitted
        assert first is not None
        assert admitted is not None
        self.succeeded += 1
        self.lengths.observe(request.prompt_tokens)
        self.answers.observe(sequence.answer)
        self.computed.observe(request.prompt_tokens - sequence.cached)
        self.whole.observe(now - sequence.arrived)
        self.queued.observe(admitted - sequence.arrived)
        self.inference.observe(now - admitted)
        self.prefill.observe(first - admitted)
        self.decode.observe(now - first)
        self.per_token.observe((now - first) / max(sequence.answer - 1, 1))
        self.preemptions.observe(sequence.preemptions)

    def response(self, status: int) -> None:
        """A response has gone out."""
        self.http[f"{status // 100}xx"] += 1
