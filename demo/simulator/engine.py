"""The engine: requests in, steps in virtual time, answers out."""

import threading
import time
from collections.abc import Callable

from simulator import page
from simulator.blocks import Pool
from simulator.config import Config
from simulator.page import Look
from simulator.prefix import Keys
from simulator.scheduler import Scheduler, Sequence, Work
from simulator.tally import Finished, Tally
from simulator.trace import Request

__all__ = ["Engine", "Finished", "ignore"]


def ignore(finished: Finished) -> None:
    """For who does not ask how requests end."""


class Engine:
    """now: virtual seconds, which pass in advance() only. scheduler, tally: to be looked at, not to be changed.

    lock: is held while anything changes, and while `finished` is called, which may submit. Who reads more than one
    value in another thread takes it.

    finished: is told of each request, once. started: UTC seconds at which the engine's process began, for its page;
    by default now, and of no influence on anything else. pool: of as many blocks as the config says, by default a new
    one. The same requests at the same moments end in the same way.
    """

    def __init__(
        self,
        config: Config,
        finished: Callable[[Finished], None] = ignore,
        started: float | None = None,
        pool: Pool | None = None,
    ) -> None:
        self.config = config
        self.now = 0.0
        self.lock = threading.RLock()
        self.tally = Tally(config.max_model_len)
        self._finished = finished
        # A moment to be shown, not to measure with.
        self._started = time.time() if started is None else started  # noqa: TID251
        self.scheduler = Scheduler(config, Pool(config.blocks) if pool is None else pool)
        self._serial = 0
        self._step: list[Work] = []
        self._step_ends = 0.0
        self._look = self._seen()

    def submit(self, request: Request) -> None:
        """A request comes in now. A prompt that leaves no room for a token of its answer ends with 400, and what finds
        the queue full with 503. An answer that would be longer than there is room for is cut."""
        with self.lock:
            config = self.config
            end = min(request.prompt_tokens + request.answer_tokens, config.max_model_len)
            if request.prompt_tokens >= config.max_model_len:
                self._refuse(request, 400)
            elif config.max_queue is not None and self.waiting >= config.max_queue:
                self.tally.rejected += 1
                self._refuse(request, 503)
            else:
                keys = Keys(request, self._serial, config.block_size)
                self._serial += 1
                self.scheduler.waiting.append(Sequence(request, keys, self.now, request.prompt_tokens, end))

    def advance(self, until: float) -> None:
        """Time passes up to `until`, virtual seconds. A step that is not over by then goes on in the next call. A step
        that may begin at `until` does, so what should be in it is submitted before."""
        while self._advance(until):
            pass

    def fail(self) -> None:
        """The engine crashes: whatever runs or waits ends with 500 and no output. What it counted stays."""
        with self.lock:
            self._step = []
            gone = self.scheduler.clear()
            self._look = self._seen()
            for sequence in gone:
                self._end(sequence, 500, 0)

    @property
    def look(self) -> Look:
        """What the scheduler had at the end of the last step: what the page tells, as in vLLM."""
        return self._look

    def page(self) -> bytes:
        """Its /metrics."""
        with self.lock:
            return page.text(self.config, self._look, self.tally, self._started).encode()

    @property
    def usage(self) -> float:
        """The share of the cache's blocks that belong to requests, 0 to 1."""
        return self.scheduler.pool.usage

    @property
    def free_blocks(self) -> int:
        """Blocks that belong to no request, whatever they hold."""
        return self.scheduler.pool.free

    @property
    def cached_blocks(self) -> int:
        """Those of the free blocks in which a prefix can be found."""
        return self.scheduler.pool.cached

    @property
    def resident_tokens(self) -> int:
        """Tokens of all blocks that hold something, for a request or to be found again; blocks count whole."""
        pool = self.scheduler.pool
        return (self.config.usable - pool.free + pool.cached) * self.config.block_size

    @property
    def running(self) -> int:
        """Requests that are computed."""
        return len(self.scheduler.running)

    @property
    def waiting(self) -> int:
        """Requests that are not, or no longer."""
        return len(self.scheduler.waiting)

    @property
    def queries(self) -> int:
        """Tokens of prompts that were looked for in the cache."""
        return self.scheduler.queries

    @property
    def hits(self) -> int:
        """Those of them that were found."""
        return self.scheduler.hits

    @property
    def preemptions(self) -> int:
        """How often a request lost its blocks to another."""
        return self.scheduler.preemptions

    def _advance(self, until: float) -> bool:
        """Goes on by one step at most; true if there may be more to do until then."""
        with self.lock:
            if not self._step:
                self._step = self.scheduler.schedule(self.now)
                if not self._step:
                    self.now = max(self.now, until)
                    return False
                chunks = ((sequence.computed - count, count) for sequence, count in self._step)
                self._step_ends = self.now + self.config.cost.step(chunks)
            if self._step_ends > until:
                self.now = max(self.now, until)
                return False
            self.now = self._step_ends
            step, self._step = self._step, []
            self._complete(step)
            return True

    def _complete(self, step: list[Work]) -> None:
        """The tokens of a step that is over; only then is the page of it, and are clients told."""
        done = []
        for sequence, _ in step:
            if sequence.computed < sequence.tokens:
                continue
            sequence.tokens += 1
            self.tally.token(sequence, self.now)
            if sequence.tokens == sequence.end:
                self.scheduler.end(sequence)
                self.tally.answered(sequence, self.now)
                done.append(sequence)
        self.tally.step_tokens.observe(sum(count for _, count in step))
        self._look = self._seen()
        for sequence in done:
            self._end(sequence, 200, sequence.answer)

    def _end(self, sequence: Sequence, status: int, output: int) -> None:
        self.tally.response(status)
        first = sequence.first_token
        times = (sequence.arrived, first, self.now)
        self._finished(Finished(sequence.request, status, output, sequence.cached, *times, sequence.preemptions))

    def _refuse(self, request: Request, status: int) -> None:
        self.tally.response(status)
        self._finished(Finished(request, status, 0, 0, self.now, None, self.now, 0))

    def _seen(self) -> Look:
        return Look(self.usage, self.running, self.waiting, self.queries, self.hits, self.preemptions)
