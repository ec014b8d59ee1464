"""The node: an engine at work on a GPU until its memory is exhausted."""

import random
import threading
import time
from collections.abc import Callable, Iterator

from incident.memory import BLOCK, Gpu, OutOfMemory
from incident.story import Users, jobs
from oomcast.client import Client
from simulator import Config, Engine, Finished, Request, Server

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


class Node:
    """gpu: made for so many blocks. client: is told of each request. speed: virtual seconds of the engine in a second.

    out_of_memory, died: when it happened, monotonic seconds.
    """

    def __init__(self, gpu: Callable[[int], Gpu], client: Client, speed: float) -> None:
        self.out_of_memory: float | None = None
        self.died: float | None = None
        self._speed = speed
        self._client = client
        self._gpu = gpu(BLOCKS)
        config = Config(BLOCKS, BLOCK, MAX_MODEL_LEN, model=MODEL)
        self._engine = Engine(config, self._ended, pool=self._gpu.pool)
        self._server = Server(self._engine)
        everybody = Users()
        self._users: list[Iterator[Request]] = [everybody.requests() for _ in range(USERS)]
        self._asks: dict[Request, Iterator[Request]] = {}
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

    def send_jobs(self) -> None:
        """The long prompts come, all at once."""
        with self._engine.lock:
            for job in jobs():
                self._engine.submit(job)

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._server.stop()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while not self._stopping.wait(TICK):
                self._engine.advance((time.monotonic() - began) * self._speed)
                self._gpu.tell()
        except OutOfMemory:
            self._gpu.tell()
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
        self._gpu.empty()
        self.died = time.monotonic()

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
