"""A machine with engines on it, looked at by the clock of the test."""

import itertools
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.engine.programs import Program, ending
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast_collectors.engine.discovery import Discovery
from oomcast_collectors.engine.naming import Names
from oomcast_collectors.engine.settings import Endpoint

LOG = logging.getLogger("oomcast.engine")
VLLM, SGLANG = "vllm-cpu-0.32.0-idle.prom", "sglang-cpu-0.5.23-idle.prom"
NUMBERS = itertools.count()


class Bench:
    """serving: the name of this test's servers, which no other process has."""

    def __init__(self, folder: Path, programs: list[Program]) -> None:
        self.clock = FakeClock()
        self.serving = f"oce{os.getpid()}x{next(NUMBERS)}"[:15]
        self._folder = folder
        self._programs = programs

    def start(self, page: str = "", **how: object) -> Program:
        self._programs.append(Program(self._folder, self.serving, **how))  # type: ignore[arg-type]
        return self._programs[-1].serve(page) if page else self._programs[-1]

    def discovery(self, *endpoints: str) -> Discovery:
        context = Context(Roots(), self.clock, LOG, lambda facts: None, (self.serving,))
        return Discovery(context, [Endpoint.model_validate({"url": url}) for url in endpoints], Names(context))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ending() as programs:
        yield Bench(tmp_path, programs)


def look(found: Discovery) -> list[tuple[str, str, int]]:
    """Kind, URL and pid of what is found."""
    found.look()
    return [(engine.kind, engine.url, engine.pid) for engine in found.engines()]


def expected(kind: str, program: Program, host: str = "127.0.0.1") -> tuple[str, str, int]:
    return (kind, f"http://{host}:{program.port}/metrics", program.pid)
