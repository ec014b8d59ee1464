"""Threads round the GPUs: a call that hangs costs its own GPU only, and comes back by itself."""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from e2e.program import until
from oomcast.clock import SystemClock
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.relay import Relay, Watchdog
from oomcast_collectors.gpu.settings import GpuSettings

PATIENCE = 0.15


@dataclass
class Job:
    """Counts its visits; those of the GPUs in `gates` wait for the gate to open."""

    name: str = "job"
    patience: float = PATIENCE
    period: float = 0.01
    visits: dict[str, list[float]] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    together: int = 0
    gates: dict[str, threading.Event] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def visit(self, card: Card) -> None:
        self.together += card.uuid in self.inside
        self.inside.add(card.uuid)
        gate = self.gates.get(card.uuid)
        if gate:
            gate.wait(20)
        self.inside.remove(card.uuid)
        self.visits.setdefault(card.uuid, []).append(time.monotonic())
        if card.uuid in self.broken:
            raise RuntimeError("a defect")

    def pause(self) -> float:
        return self.period

    def count(self, uuid: str) -> int:
        return len(self.visits.get(uuid, []))


@dataclass
class Round:
    job: Job
    relay: Relay
    cards: list[Card]

    def advanced(self, uuid: str, seconds: float = 0.3) -> int:
        before = self.job.count(uuid)
        time.sleep(seconds)
        return self.job.count(uuid) - before


@pytest.fixture
def round_of_three() -> Iterator[Round]:
    job, clock = Job(), SystemClock()
    relay = Relay(job, clock, logging.getLogger("relay"))
    cards = [Card(f"GPU-{i}", GpuSettings.model_validate({}), clock) for i in range(3)]
    watchdog = Watchdog([relay])
    relay.start()
    watchdog.start()
    relay.go_round(cards)
    until(lambda: all(job.count(card.uuid) > 2 for card in cards))
    yield Round(job, relay, cards)
    relay.end()
    watchdog.end()
    for gate in job.gates.values():
        gate.set()
    until(lambda: relay.drained)


def hang(ring: Round, uuid: str) -> threading.Event:
    gate = ring.job.gates[uuid] = threading.Event()
    card = next(card for card in ring.cards if card.uuid == uuid)
    until(lambda: bool(card.hanging))
    return gate


def test_a_hung_gpu_costs_the_others_one_gap(round_of_three: Round) -> None:
    hang(round_of_three, "GPU-1")
    assert round_of_three.cards[1].state == "stuck"
    assert round_of_three.advanced("GPU-0") > 5
    assert round_of_three.advanced("GPU-2") > 5
    times = round_of_three.job.visits["GPU-2"]
    assert max(b - a for a, b in pairwise(times)) < PATIENCE + 0.1 + 0.5
    assert round_of_three.job.together == 0
    assert round_of_three.cards[1].handovers == 1
    assert not round_of_three.relay.drained


def test_it_comes_back_by_itself(round_of_three: Round) -> None:
    gate = hang(round_of_three, "GPU-1")
    del round_of_three.job.gates["GPU-1"]
    gate.set()
    until(lambda: not round_of_three.cards[1].hanging)
    assert round_of_three.advanced("GPU-1") > 5
    assert round_of_three.advanced("GPU-0") > 5
    assert round_of_three.cards[1].state == "ok"


def test_all_may_hang_at_once(round_of_three: Round) -> None:
    gates = [hang(round_of_three, card.uuid) for card in round_of_three.cards]
    assert [card.state for card in round_of_three.cards] == ["stuck"] * 3
    round_of_three.job.gates.clear()
    for gate in gates:
        gate.set()
    until(lambda: not any(card.hanging for card in round_of_three.cards))
    assert all(round_of_three.advanced(card.uuid) for card in round_of_three.cards)


def test_threads_do_not_pile_up(round_of_three: Round) -> None:
    before = threading.active_count()
    for _ in range(5):
        gate = hang(round_of_three, "GPU-0")
        del round_of_three.job.gates["GPU-0"]
        gate.set()
        until(lambda: not round_of_three.cards[0].hanging)
    until(lambda: threading.active_count() <= before)


def test_a_slow_gpu_is_read_all_the_same(round_of_three: Round) -> None:
    gate = hang(round_of_three, "GPU-1")
    count = round_of_three.job.count("GPU-1")
    gate.set()
    until(lambda: round_of_three.job.count("GPU-1") > count)


def test_a_card_at_rest_is_left_alone(round_of_three: Round) -> None:
    round_of_three.cards[0].rests_until = time.monotonic() + 0.5
    time.sleep(0.05)
    assert round_of_three.advanced("GPU-0", 0.2) == 0
    assert round_of_three.advanced("GPU-1", 0.2) > 5
    until(lambda: round_of_three.advanced("GPU-0", 0.05) > 0)


def test_a_defect_costs_one_gpu_and_is_told_once(round_of_three: Round, caplog: pytest.LogCaptureFixture) -> None:
    round_of_three.job.broken.add("GPU-1")
    assert round_of_three.advanced("GPU-2") > 5
    assert [record.getMessage() for record in caplog.records] == ["reading a GPU failed: RuntimeError: a defect"]


def test_nobody_is_visited_after_the_round_was_emptied(round_of_three: Round) -> None:
    round_of_three.relay.go_round(())
    until(lambda: round_of_three.relay.drained)
    assert [round_of_three.advanced(card.uuid, 0.1) for card in round_of_three.cards] == [0, 0, 0]
    round_of_three.relay.go_round(round_of_three.cards[:1])
    assert round_of_three.advanced("GPU-0", 0.2) > 5
    assert round_of_three.advanced("GPU-1", 0.1) == 0


def test_an_ended_relay_is_drained_only_when_the_call_is_back(round_of_three: Round) -> None:
    gate = hang(round_of_three, "GPU-1")
    round_of_three.relay.end()
    time.sleep(0.1)
    assert not round_of_three.relay.drained
    gate.set()
    until(lambda: round_of_three.relay.drained)
