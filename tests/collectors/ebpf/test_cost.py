"""What probes cost, added up, and kept within a budget."""

import itertools
import logging

import pytest

from fakes import FakeClock
from oomcast.contract import Event
from oomcast_collectors.ebpf.child.cost.duty import Duty, Full, Sampled, duty
from oomcast_collectors.ebpf.child.cost.meter import CallCost, Meter
from oomcast_collectors.ebpf.settings import Allocations

COST = CallCost(allocate=3e-6, free=1e-6, step=8e-6)
SECONDS, PER_CALL, RATIO = (
    "oomcast_ebpf_cost_seconds_total",
    "oomcast_ebpf_cost_per_call_seconds",
    "oomcast_ebpf_cost_ratio",
)


def _rows(meter: Meter, now: float) -> dict[tuple[str, str], float]:
    return {(row.metric, row.labels[1]): row.value for row in meter.rows(now)}


class Machine:
    """Processes that allocate: while the duty has their calls followed, each second costs them `ratio` seconds."""

    def __init__(self, ratio: float = 0.0, switching: float = 0.0, **settings: object) -> None:
        self.ratio = ratio
        self.clock = FakeClock()
        self.meter = Meter("allocations", {"libc": COST}, self.clock.mono)
        self.events: list[Event] = []
        self.on_seconds = 0.0
        self.switches: list[tuple[float, bool]] = []
        self.begins: list[tuple[float, float]] = []
        self._switching = switching
        self._owed = 0.0
        chosen = Allocations.model_validate(settings)
        common = (chosen, self.meter, self.clock, logging.getLogger("ebpf"), self.events.append)
        self.duty: Duty = Sampled(*common, random=lambda: 0.5) if chosen.libc == "sampled" else Full(*common)

    def run(self, seconds: float) -> None:
        until = self.clock.mono + seconds
        while self.clock.mono < until - 1e-6:
            was = bool(self.switches and self.switches[-1][1])
            on = self.duty.tick(self.clock.mono)
            if on != was:
                self.switches.append((self.clock.mono, on))
                if on:
                    self.begins.append((self.clock.mono, self.on_seconds))
                self._pass(self._switching, 0.5)
                self.duty.switched(self._switching)
            self._pass(0.1, float(on))

    def _pass(self, seconds: float, followed: float) -> None:
        self.clock.advance(seconds)
        self.on_seconds += seconds * followed
        self._owed += self.ratio * seconds * followed / COST.allocate
        self.meter.add("libc", int(self._owed), 0)
        self._owed %= 1


def test_cost_is_hits_times_what_one_costs() -> None:
    meter = Meter("allocations", {"brk": COST, "libc": COST}, 0.0)
    assert _rows(meter, 0.0)[SECONDS, "libc"] == 0
    meter.add("libc", 1000, 400, 100)
    meter.add("libc", 1000, 600)
    rows = _rows(meter, 10.0)
    assert rows[SECONDS, "libc"] == pytest.approx(2000 * 3e-6 + 1000 * 1e-6 + 100 * 8e-6)
    assert rows[PER_CALL, "libc"] == pytest.approx(2e-6)
    assert rows[SECONDS, "brk"] == rows[RATIO, "brk"] == 0


def test_the_ratio_is_of_the_last_ten_seconds() -> None:
    meter = Meter("allocations", {"libc": COST}, 0.0)
    for tick in range(1, 301):
        meter.add("libc", 10_000 if tick <= 150 else 20_000, 0)  # a tick is 0.1 s
        meter.ratio("libc", tick / 10)
        if tick == 150:
            assert meter.ratio("libc", 15.0) == pytest.approx(0.3, rel=0.03)
        if tick == 200:
            assert meter.ratio("libc", 20.0) == pytest.approx(0.45, rel=0.03)
    assert meter.ratio("libc", 30.0) == pytest.approx(0.6, rel=0.03)
    meter.ratio("libc", 35.0)
    assert meter.ratio("libc", 45.0) == 0


def test_a_few_calls_at_the_very_beginning_are_no_high_ratio() -> None:
    meter = Meter("allocations", {"libc": COST}, 0.0)
    meter.add("libc", 1000, 0)
    assert meter.ratio("libc", 0.001) == pytest.approx(1000 * 3e-6)


def test_without_a_measurement_nothing_is_told_and_the_budget_still_holds() -> None:
    meter = Meter("allocations", {"libc": None, "brk": COST}, 0.0)
    meter.add("libc", 100_000, 0)
    assert {kind for _, kind in _rows(meter, 10.0)} == {"brk"}
    assert meter.ratio("libc", 10.0) > 100_000 * COST.allocate / 10


def test_nothing_is_followed_where_the_settings_say_so() -> None:
    meter = Meter("allocations", {}, 0.0)
    assert duty(Allocations.model_validate({}), meter, FakeClock(), logging.getLogger("ebpf"), print) is None


def test_full_stays_on_within_the_budget() -> None:
    machine = Machine(ratio=0.04, libc="full")
    machine.run(3600)
    assert [on for _, on in machine.switches] == [True]
    assert machine.duty.share == 1
    assert machine.events == []


def test_full_is_off_when_the_budget_is_passed_and_says_so_once() -> None:
    machine = Machine(ratio=2.0, libc="full")
    machine.run(60)
    assert [on for _, on in machine.switches] == [True, False]
    assert machine.meter.seconds("libc") < 0.05 * 10 + 0.5
    assert machine.duty.share == 0
    (event,) = machine.events
    assert event.kind == "ebpf_budget"
    assert event.fields["budget_ratio"] == 0.05
    machine.run(4 * 3600)
    assert len(machine.events) == 1


def test_full_is_tried_again_after_pauses_that_grow() -> None:
    machine = Machine(ratio=2.0, libc="full")
    machine.run(8 * 3600)
    off = [when for when, on in machine.switches if not on]
    on = [when for when, on in machine.switches if on]
    pauses = [begin - end for end, begin in zip(off, on[1:], strict=False)]
    assert [round(pause) for pause in pauses[:6]] == [120, 240, 480, 960, 1920, 3600]
    assert set(map(round, pauses[5:])) == {3600}


def test_full_forgets_that_after_ten_minutes_within_the_budget() -> None:
    machine = Machine(ratio=2.0, libc="full")
    machine.run(300)
    machine.ratio = 0.01
    machine.run(1200)
    assert machine.duty.share == 1
    machine.ratio = 2.0
    machine.run(60)
    assert len(machine.events) == 2
    machine.run(120)
    assert [on for _, on in machine.switches][-3:] == [False, True, False]


def test_sampled_is_on_for_the_share_that_is_asked_for() -> None:
    machine = Machine(ratio=0.5, libc="sampled", libc_share=0.05)
    machine.run(2000)
    assert machine.on_seconds == pytest.approx(100, rel=0.1)
    assert machine.duty.share == pytest.approx(machine.on_seconds / 2000, rel=0.1)
    assert machine.events == []


def test_sampled_says_what_share_it_was_where_switching_takes_its_time() -> None:
    machine = Machine(switching=0.5, libc="sampled", libc_share=0.2)
    machine.run(1000)
    on = [when for when, on in machine.switches if on]
    off = [when for when, on in machine.switches if not on]
    slices = [end - begin for begin, end in zip(on[1:], off[1:], strict=False)]
    assert min(slices) > 2 * 0.5 / 0.1
    (began, before), (ended, after) = machine.begins[-11], machine.begins[-1]
    assert machine.duty.share == pytest.approx((after - before) / (ended - began), rel=0.005)


def test_sampled_is_on_for_less_where_it_would_cost_more_than_the_budget() -> None:
    machine = Machine(ratio=8.0, libc="sampled", libc_share=0.05, budget=5)
    machine.run(2000)
    assert machine.meter.seconds("libc") <= 2000 * 0.05 + 2
    # It is used, too: the share falls and the group is not merely off.
    assert machine.meter.seconds("libc") > 2000 * 0.05 * 0.7
    assert machine.duty.share == pytest.approx(machine.on_seconds / 2000, rel=0.1)
    assert [event.kind for event in machine.events] == ["ebpf_budget"]


def test_sampled_keeps_the_budget_however_short_a_slice() -> None:
    machine = Machine(ratio=500.0, libc="sampled", libc_share=0.5, budget=1)
    machine.run(20_000)
    assert machine.meter.seconds("libc") <= 20_000 * 0.01 + 50 + 1


def test_slices_do_not_keep_step_with_anything() -> None:
    chosen = Allocations.model_validate({"libc": "sampled"})
    clock = FakeClock()
    meter = Meter("allocations", {"libc": COST}, clock.mono)
    sampled = Sampled(chosen, meter, clock, logging.getLogger("ebpf"), print)
    begins, on = [], False
    for _ in range(5000):
        was, on = on, sampled.tick(clock.mono)
        if on and not was:
            begins.append(clock.mono)
        clock.advance(0.1)
    periods = {round(b - a, 1) for a, b in itertools.pairwise(begins)}
    assert len(periods) > 5
    assert all(15 <= period <= 25 for period in periods)
