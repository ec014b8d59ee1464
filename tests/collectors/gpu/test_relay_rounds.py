"""Rounds that take longer than everything else, and a machine on which no more threads are to be had."""

import logging
import threading
import time

import pytest

from e2e.program import until
from oomcast.clock import SystemClock
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.relay import Relay
from oomcast_collectors.gpu.settings import GpuSettings

LOG = logging.getLogger("relay")


class Job:
    """Each visit waits to be let go."""

    name = "job"
    patience = 0.05

    def __init__(self) -> None:
        self.visits: list[str] = []
        self.broken = False
        self._go = threading.Semaphore(0)

    def visit(self, card: Card) -> None:
        self.visits.append(card.uuid)
        if self.broken:
            raise RuntimeError(f"a defect of {card.uuid}")
        self._go.acquire(timeout=20)

    def pause(self) -> float:
        return 0.001

    def let_go(self, visits: int = 1) -> None:
        self._go.release(visits)


class Starved(Relay):
    """No thread can be had as long as `starved`."""

    starved = False

    def start(self) -> None:
        if self.starved:
            raise RuntimeError("can't start new thread")
        super().start()


@pytest.fixture
def cards() -> list[Card]:
    return [Card(f"GPU-{i}", GpuSettings.model_validate({}), SystemClock()) for i in range(3)]


def test_a_round_that_is_asked_for_again_goes_on(cards: list[Card]) -> None:
    job = Job()
    relay = Relay(job, SystemClock(), LOG)
    relay.go_round(cards)
    relay.start()
    for visits in range(1, 7):
        until(lambda seen=visits: len(job.visits) == seen)  # type: ignore[misc]
        relay.go_round(list(cards))
        job.let_go()
    relay.end()
    job.let_go(10)
    until(lambda: relay.drained)
    assert job.visits[:6] == ["GPU-0", "GPU-1", "GPU-2"] * 2


def test_without_a_thread_to_be_had_the_next_look_hands_over(
    cards: list[Card], caplog: pytest.LogCaptureFixture
) -> None:
    job = Job()
    relay = Starved(job, SystemClock(), LOG)
    relay.go_round(cards[:2])
    relay.start()
    until(lambda: job.visits == ["GPU-0"])
    time.sleep(2 * job.patience)
    relay.starved = True
    relay.watch()
    relay.watch()
    assert (cards[0].hanging, cards[0].handovers, relay.hung) == ({}, 0, False)
    assert [record.getMessage() for record in caplog.records] == [
        "reading a GPU failed: RuntimeError: can't start new thread"
    ]
    relay.starved = False
    relay.watch()
    assert (list(cards[0].hanging), cards[0].handovers, relay.hung) == (["job"], 1, True)
    until(lambda: job.visits == ["GPU-0", "GPU-1"])
    relay.end()
    job.let_go(10)
    until(lambda: relay.drained)


def test_a_thread_that_could_not_be_succeeded_goes_on_itself(cards: list[Card]) -> None:
    job = Job()
    relay = Starved(job, SystemClock(), LOG)
    relay.go_round(cards[:2])
    relay.start()
    until(lambda: job.visits == ["GPU-0"])
    time.sleep(2 * job.patience)
    relay.starved = True
    relay.watch()
    job.let_go()
    until(lambda: job.visits == ["GPU-0", "GPU-1"])
    relay.end()
    job.let_go(10)
    until(lambda: relay.drained)


def test_defects_of_several_gpus_are_each_told_once(cards: list[Card], caplog: pytest.LogCaptureFixture) -> None:
    job = Job()
    job.broken = True
    relay = Relay(job, SystemClock(), LOG)
    relay.go_round(cards)
    relay.start()
    until(lambda: len(job.visits) > 20)
    relay.end()
    until(lambda: relay.drained)
    assert [record.getMessage() for record in caplog.records] == [
        f"reading a GPU failed: RuntimeError: a defect of GPU-{i}" for i in range(3)
    ]
