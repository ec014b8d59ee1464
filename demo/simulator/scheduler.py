"""Who is computed in a step: the scheduler of vLLM V1, first come first served."""

from collections import deque
from dataclasses import dataclass, field

from simulator.blocks import Pool
from simulator.config import Config
from simulator.prefix import Keys
from simulator.trace import Request

Work = tuple["Sequence", int]
"""A sequence, and how many of its tokens are computed in a step."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way. Times are virtual seconds, None before they come.

    tokens: of the prompt and of the answer so far. end: with the whole answer. computed: tokens whose keys and values
    are in its blocks. full: its blocks that can be found by others. cached: tokens that it found when it was first
    admitted.
    """

    request: Request
    keys: Keys
    arrived: float
    tokens: int
    end: int
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    full: int = 0
    cached: int = 0
    preemptions: int = 0
    admitted: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    @property
    def answer(self) -> int:
        """Tokens of the whole answer."""
        return self.end - self.request.prompt_tokens


class Scheduler:
    """running: in the order of admission. waiting: the next one first. queries, hits: tokens of prompts that were
    looked for in the cache and found, each prompt once. preemptions: so far."""

    def __init__(self, config: Config, pool: Pool) -> None:
        self.pool = pool
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.queries = 0
        self.hits = 0
        self.preemptions = 0
        self._config = config
        self._size = config.block_size

    def schedule(self, now: float) -> list[Work]:
        """The work of the step that begins now, empty if there is none."""
        work: list[Work] = []
        budget = self._continue(work, self._config.max_num_batched_tokens)
        # After a preemption nobody gets in: the first of the queue is who was preempted, which needs at least what it
        # had, and a part of that is taken.
        self._admit(work, budget, now)
        for sequence, count in work:
            sequence.computed += count
        return work

    def end(self, sequence: Sequence) -> None:
        """Takes a sequence that runs out, and gives its blocks back."""
        self.running.remove(sequence)
        self.pool.give_back(sequence.blocks)

    def clear(self) -> list[Sequence]:
        """Takes all of them out."""
        gone = [*self.running, *self.waiting]
        for sequence in self.running:
            self.pool.give_back(sequence.blocks)
        self.running.clear()
        self.waiting.clear()
        return gone

    def _continue(self, work: list[Work], budget: int) -> int:
        """Those that run, up to the budget; returns what is left of it."""
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            count = min(sequence.tokens - sequence.computed, budget)
            missing = self._blocks(sequence.computed + count) - len(sequence.blocks)
            if missing > 0 and not self._make_room(sequence, missing):
                break
            self._extend(sequence, sequence.computed + count, missing)
            work.append((sequence, count))
            budget -= count
            index += 1
        return budget

    def _make_room(self, sequence: Sequence, missing: int) -> bool:
        """Preempts the last admitted until so many blocks are free; false if that was the sequence itself."""
        while missing > self.pool.free:
            victim = self.running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: Sequence) -> None:
        self.pool.give_back(victim.blocks)
        victim.blocks = []
        victim.computed = 0
        victim.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(victim)

    def _admit(self, work: list[Work], budget: int, now: float) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._config.max_num_seqs:
            sequence = self.waiting[0]
            # The last token is computed even if it is known: without, there is nothing to answer from.
            most = (sequence.tokens - 1) // self._size
            found = self.pool.find(sequence.keys.first(most), most)
            # All of the prompt must fit, not only what of it this step computes.
            needed = self._blocks(sequence.tokens) - len(found) + self.pool.idle(found)
            if needed > self.pool.free:
                break
            self.waiting.popleft()
            self.running.append(sequence)
            self._begin(sequence, found, now)
            count = min(sequence.tokens - sequence.computed, budget)
            until = sequence.computed + count
            self._extend(sequence, until, self._blocks(until) - len(found))
            work.append((sequence, count))
            budget -= count

    def _begin(self, sequence: Sequence, found: list[int], now: float) -> None:
        self.pool.share(found)
        sequence.blocks = found
        sequence.full = len(found)
        sequence.computed = len(found) * self._size
        if not sequence.preemptions:
            self.queries += sequence.tokens
            self.hits += sequence.computed
            sequence.cached = sequence.computed
            sequence.admitted = now

    def _extend(self, sequence: Sequence, tokens: int, missing: int) -> None:
        """Takes the blocks that so many tokens need more. Those that they fill can be found at once, before they are
        computed."""
        if missing > 0:
            sequence.blocks += self.pool.take(missing)
        full, before = tokens // self._size, sequence.full
        if full > before:
            self.pool.hold(sequence.blocks[before:full], sequence.keys.first(full)[before:full])
            sequence.full = full

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._size)
