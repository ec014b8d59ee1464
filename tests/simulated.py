"""Small engines whose steps take a second each, so that every number can be worked out by hand."""

from simulator import Config, Cost, Engine, Finished, Request

SIZE = 4
"""Tokens of a block, and of what an id stands for."""


class Seen:
    """An engine, and how its requests ended, in that order."""

    def __init__(
        self, usable: int, longest: int = 16, sequences: int = 8, batched: int = 64, max_queue: int | None = None
    ) -> None:
        config = Config(usable + 1, SIZE, longest, sequences, batched, cost=Cost(1, 0, 0, 0, 0), max_queue=max_queue)
        self.ended: list[Finished] = []
        self.engine = Engine(config, self.ended.append, started=1.0)

    def submit(self, *requests: Request) -> None:
        for request in requests:
            self.engine.submit(request)

    def steps(self, count: int = 1) -> None:
        """So many steps end; the next one has begun."""
        self.engine.advance(self.engine.now + count)

    def to_end(self) -> None:
        while self.engine.running or self.engine.waiting:
            self.steps()

    def blocks(self) -> list[list[int]]:
        """Those of each request that runs."""
        return [sequence.blocks for sequence in self.engine.scheduler.running]

    @property
    def statuses(self) -> list[int]:
        return [finished.status for finished in self.ended]


def request(prompt: int, answer: int, *ids: int) -> Request:
    return Request(0.0, prompt, answer, ids, SIZE)
