"""The node: an engine at work on a GPU until its memory is exhausted."""

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from incident.memory import BLOCK, OutOfMemory
from incident.story import Users, jobs
from oomcast.client import Client
from simulator import Config, Engine, Finished, Request, Server
from simulator.blocks import Pool

BLOCKS = 75_000
MAX_MODEL_LEN = 200_000
USERS = 3
MODEL = "qwen2.5-7b"

SEED = 128
"""Of trace ids."""

TICK = 0.05
"""Seconds."""

_PARTING = 0.3

_DYING = 2.5
"""Seconds for which a vLLM whose core died still serves its last page, and holds its memory."""


class Memory(Protocol):
    """What an engine takes its blocks from."""

    @property
    def pool(self) -> Pool: ...

    def tell(self) -> None:
        """Lets the driver say what is used now."""

    def empty(self) -> None:
        """The engine's process is gone."""


CONFIG = Config(BLOCKS, BLOCK, MAX_MODEL_LEN, model=MODEL)


class Node:
    """One life of an engine.

    memory: with as many blocks as the config says. client: is told of each request. speed: virtual seconds of the
    engine in a second. users: what each of them asks, one after the other; by default as in the incident. port: of the
    engine, 0 for any.
    out_of_memory, died: when it happened, monotonic seconds.
    """

    def __init__(
        self,
        memory: Memory,
        client: Client,
        speed: float,
        *,
        users: Sequence[Iterator[Request]] | None = None,
        config: Config = CONFIG,
        port: int = 0,
    ) -> None:
        self.out_of_memory: float | None = None
        self.died: float | None = None
        self._speed = speed
        self._client = client
        self._memory = memory
        self._engine = Engine(config, self._ended, pool=self._memory.pool)
        self._server = Server(self._engine, port)
        everybody = Users()
        self._users = [everybody.requests() for _ in range(USERS)] if users is None else users
        self._asks: dict[Request, Iterator[Request]] = {}
        self._jobs: deque[tuple[float, Request]] = deque()
        self._ids = random.Random(SEED)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    @property
    def url(self) -> str:
        """Of the engine."""
        return self._server.url

    def serve(self) -> None:
        """The engine answers, and idles."""
        self._server.start()

    def start(self) -> None:
        """Its users begin to ask."""
        for user in self._users:
            self._ask(user)
        self._thread.start()

    def send_jobs(self, some: Sequence[Request] | None = None, apart: float = 0.0) -> None:
        """The long prompts come, by default those of the incident. apart: virtual seconds from one to the next."""
        with self._engine.lock:
            began = self._engine.now
            self._jobs.extend(
                (began + number * apart, job) for number, job in enumerate(jobs() if some is None else some)
            )
            self._submit_due(began)

    def stop(self) -> None:
        """The engine answers no more; its memory is not told to be empty."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._server.stop()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while not self._stopping.wait(TICK):
                now = (time.monotonic() - began) * self._speed
                self._submit_due(now)
                self._engine.advance(now)
                self._memory.tell()
        except OutOfMemory:
            self._memory.tell()
            self.out_of_memory = time.monotonic()
            self._die()

    def _die(self) -> None:
        # Whoever asked gets no answer, and nobody asks again.
        self._asks.clear()
        self._stopping.wait(_DYING)
        self._engine.fail()
        # The daemon's socket holds ten messages at a time.
        self._stopping.wait(_PARTING)
        self._client.close()
        self._server.stop()
        self._memory.empty()
        self.died = time.monotonic()

    def _submit_due(self, now: float) -> None:
        with self._engine.lock:
            while self._jobs and self._jobs[0][0] <= now:
                self._engine.submit(self._jobs.popleft()[1])

    def _ask(self, user: Iterator[Request]) -> None:
        request = next(user)
        self._asks[request] = user
        self._engine.submit(request)

    def _ended(self, finished: Finished) -> None:
        arrived, first = finished.arrived, finished.first_token
        self._client.send(
            prompt_tokens=finished.request.prompt_tokens,
            status=finished.status,
            output_tokens=finished.output_tokens,
            cached_tokens=finished.cached_tokens,
            empty=not finished.output_tokens,
            # A request that dies with the engine was answered by nobody who would have told one.
            trace_id=None if finished.status >= 500 else f"{self._ids.getrandbits(128):032x}",
            ttft_seconds=None if first is None else first - arrived,
            e2e_seconds=finished.ended - arrived,
        )
        user = self._asks.pop(finished.request, None)
        if user is not None:
            self._ask(user)
