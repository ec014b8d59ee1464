"""The library's life: opened, looked at, closed only with nobody inside, opened anew; and its end, in every state."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from collectors.gpu.library import FakeLibrary, RunningClock, error
from e2e.program import until
from oomcast.contract import Context, Roots
from oomcast_collectors.gpu.driver import Missing
from oomcast_collectors.gpu.relay import Relay, Watchdog
from oomcast_collectors.gpu.sampling import MemoryJob
from oomcast_collectors.gpu.session import Session
from oomcast_collectors.gpu.settings import GpuSettings

SOON = 20.0
SETTINGS = GpuSettings.model_validate({"sampling_period": 0.01, "driver_share": 1})


class Life:
    """A session with a relay that reads memory, on a clock that only `ticks` puts forward by more than it goes."""

    def __init__(self, proc: Path) -> None:
        self.clock = RunningClock()
        self.library = FakeLibrary("GPU-a", "GPU-b", clock=self.clock)
        self.restarts: list[str] = []
        self.log = logging.getLogger("session")
        roots, push = Roots(proc=proc), lambda facts: None
        context = Context(roots, self.clock, self.log, push, restart=self.restarts.append)
        self.session = Session(self.library, SETTINGS, context, self._rest)
        job = MemoryJob(SETTINGS, self.clock, push, self.session.refuse, lambda card: [])
        self.relay = Relay(job, self.clock, self.log)
        self.watchdog = Watchdog([self.relay])
        self._go = threading.Semaphore(0)
        self._rests = threading.Semaphore(0)

    def _rest(self, ended: threading.Event, seconds: float) -> None:
        self._rests.release()
        while not ended.is_set() and not self._go.acquire(timeout=0.005):
            pass
        self.clock.ahead += seconds

    def start(self) -> None:
        self.watchdog.start()
        self.session.start([self.relay])

    def await_rest(self) -> None:
        assert self._rests.acquire(timeout=SOON), "a step did not come to its end"

    def ticks(self, seconds: float) -> None:
        """As many steps as there are in that time."""
        for _ in range(round(seconds * 2)):
            self._go.release()
            self.await_rest()

    @property
    def is_fine(self) -> bool:
        return self.session.error is None and self.session.closed_since is None

    def tick_alone(self) -> None:
        """One step that is not waited for, since it will hang."""
        self._go.release()

    def hang_memory(self, uuid: str = "GPU-b") -> None:
        self.library.hang("memory", uuid)
        until(lambda: bool(self.session.cards[uuid].hanging))

    def is_read(self, uuid: str = "GPU-a") -> bool:
        """Whether its memory is read again, from now on."""
        card = self.session.cards[uuid]
        before = card.call_seconds
        end = time.monotonic() + 2
        while card.call_seconds == before and time.monotonic() < end:
            time.sleep(0.01)
        return card.call_seconds > before


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path)
    yield made
    made.library.failing.clear()
    made.library.release()
    made.session.stop(made.clock.monotonic() + SOON)
    made.watchdog.end()
    assert not made.library.is_open
    assert not made.library.unsafe
    assert not made.library.watching


@pytest.fixture
def opened(life: Life) -> Life:
    life.start()
    life.await_rest()
    until(lambda: life.is_read() and life.is_read("GPU-b"))
    return life


def kernel_list(proc: Path, **gpus: str) -> None:
    """gpus: what the kernel's driver tells of the uuid of each, by the number of its bus."""
    for old in (proc / "driver/nvidia/gpus").glob("*/information"):
        old.unlink()
        old.parent.rmdir()
    for bus, uuid in gpus.items():
        gpu = proc / f"driver/nvidia/gpus/0000:{bus[1:]}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\n")


def distances(life: Life, wanted: int, limit: float) -> list[int]:
    """Whole seconds between the attempts to open the library, for as long as it takes."""
    while len(life.library.opened_at) <= wanted and limit > 0:
        life.ticks(1)
        limit -= 1
    return [round(b - a) for a, b in pairwise(life.library.opened_at)]


def test_an_open_library_tells_its_gpus(opened: Life) -> None:
    session = opened.session
    assert (session.inits, session.version, session.counted) == (1, "580.95.05", 2)
    assert opened.is_fine
    assert session.settled.is_set()
    assert sorted(session.cards) == ["GPU-a", "GPU-b"]
    until(lambda: opened.library.watched == [["GPU-a", "GPU-b"]])


def test_a_library_that_does_not_open_is_tried_ever_more_rarely(life: Life) -> None:
    life.library.failing["open"] = error("no_driver")
    life.start()
    life.await_rest()
    assert life.session.error is not None
    assert life.session.closed_since is not None
    assert (life.session.inits, life.session.settled.is_set()) == (0, True)
    assert distances(life, 7, 300) == [2, 4, 8, 16, 32, 60, 60]
    life.library.failing.clear()
    life.ticks(60)
    assert (life.session.inits, life.is_fine) == (1, True)


def test_it_is_settled_once_the_error_is_known(life: Life) -> None:
    life.library.hang("open")
    life.library.failing["open"] = error("no_driver")
    life.start()
    until(lambda: bool(life.library.calls.get("open")))
    assert not life.session.settled.is_set()
    life.library.release()
    assert life.session.settled.wait(SOON)
    assert life.session.error is not None


@pytest.mark.parametrize("function", ["version", "devices"])
def test_what_fails_right_after_the_opening_closes_it_again(life: Life, function: str) -> None:
    life.library.failing[function] = error("transient")
    life.start()
    life.await_rest()
    assert (life.session.inits, life.library.is_open) == (0, False)
    life.library.failing.clear()
    life.ticks(3)
    assert (life.session.inits, life.is_fine) == (1, True)


def test_a_defect_in_the_opening_is_told_and_heals(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    life.library.failing["devices"] = ValueError("a defect")
    life.start()
    life.await_rest()
    life.ticks(3)
    assert [record.getMessage() for record in caplog.records] == [
        "looking after the GPUs failed: ValueError('a defect')"
    ]
    assert life.session.closed_since is not None
    life.library.failing.clear()
    life.ticks(6)
    assert (life.session.inits, life.is_fine) == (1, True)


def test_a_library_that_forgot_us_is_opened_anew(opened: Life) -> None:
    opened.library.failing["memory"] = error("session")
    until(lambda: opened.session._refused is not None)
    opened.ticks(0.5)
    assert (str(opened.session.error), opened.library.is_open) == (str(error("session")), False)
    opened.library.failing.clear()
    opened.ticks(3)
    assert (opened.session.inits, opened.is_fine) == (2, True)
    assert opened.is_read()


def test_a_library_that_fails_soon_after_each_opening_is_opened_ever_more_rarely(opened: Life) -> None:
    for pause in (2, 4, 8):
        opened.session.refuse(error("session"))
        opened.ticks(0.5)
        opened.ticks(pause)
        opened.ticks(0.5)
        assert opened.is_fine
    assert [round(b - a) for a, b in pairwise(opened.library.opened_at)] == pytest.approx([2.5, 4.5, 8.5], abs=0.6)
    opened.ticks(66)
    opened.session.refuse(error("session"))
    opened.ticks(3)
    assert opened.is_fine, "one that served for a minute is not to blame"


def test_nothing_is_closed_under_a_call(opened: Life) -> None:
    opened.hang_memory()
    for _ in range(3):
        opened.session.refuse(error("session"))
        opened.ticks(0.5)
        assert opened.library.is_open
    assert opened.session.error is not None
    assert opened.is_read(), "the others go on"
    opened.library.release()
    until(lambda: opened.relay.drained or not opened.session.cards["GPU-b"].hanging)
    opened.session.refuse(error("session"))
    opened.ticks(3)
    assert (opened.session.inits, opened.is_fine) == (2, True)


def test_a_failure_that_passes_while_a_call_hangs_is_forgotten(opened: Life) -> None:
    opened.hang_memory()
    opened.library.failing["devices"] = error("transient")
    opened.ticks(12)
    assert opened.session.error is not None
    opened.library.failing.clear()
    opened.ticks(6)
    assert (opened.session.inits, opened.is_fine) == (1, True)


def test_a_look_that_hangs_costs_no_reading(opened: Life) -> None:
    opened.library.hang("devices")
    opened.ticks(4.5)
    opened.tick_alone()
    until(lambda: opened.library.calls["devices"] == 2)
    assert opened.is_read()
    assert opened.is_read("GPU-b")
    assert opened.is_fine


def test_a_watch_that_hangs_costs_one_gap_and_the_others_are_watched(opened: Life, tmp_path: Path) -> None:
    until(lambda: opened.library.calls.get("wait", 0) > 2)
    opened.library.hang("wait")
    before = opened.library.calls["wait"]
    until(lambda: opened.library.calls["wait"] > before)
    kernel_list(tmp_path, b10="GPU-a", b11="GPU-b")
    opened.ticks(5.5)
    assert (opened.library.is_open, opened.session.inits) == (True, 1)
    until(lambda: len(opened.library.watched) == 2)
    began = time.monotonic()
    opened.ticks(20)
    assert time.monotonic() - began < 1.9, "nobody is called back in vain a second time"
    assert opened.is_read()
    assert len(opened.library.watched) == 2
    opened.library.release()
    until(lambda: opened.library.watching == 1)
    opened.ticks(6)
    assert opened.session.inits == 2


def test_a_call_that_comes_back_late_only_costs_a_gap(opened: Life, tmp_path: Path) -> None:
    opened.hang_memory()
    kernel_list(tmp_path, b10="GPU-a", b11="GPU-b")
    opened.ticks(6)
    assert opened.session.inits == 1
    opened.library.release()
    until(lambda: not opened.session.cards["GPU-b"].hanging)
    opened.ticks(6)
    assert (opened.session.inits, opened.is_fine) == (2, True)


@pytest.mark.parametrize(
    ("after", "inits"),
    [
        pytest.param({"b10": "GPU-" + "a" * 36, "b11": "GPU-" + "b" * 36}, 1, id="the same"),
        pytest.param({"b10": "GPU-" + "a" * 36, "b11": ""}, 1, id="not told at the moment"),
        pytest.param({"b10": "GPU-" + "a" * 36}, 2, id="one went"),
        pytest.param({"b10": "GPU-" + "a" * 36, "b11": "GPU-" + "b" * 36, "b12": ""}, 2, id="one came"),
        pytest.param({"b10": "GPU-" + "a" * 36, "b11": "GPU-" + "c" * 36}, 2, id="another at its place"),
    ],
)
def test_the_kernels_list_changes(life: Life, tmp_path: Path, after: dict[str, str], inits: int) -> None:
    kernel_list(tmp_path, b10="GPU-" + "a" * 36, b11="GPU-" + "b" * 36)
    life.start()
    life.await_rest()
    kernel_list(tmp_path, **after)
    life.ticks(7)
    assert life.session.inits == inits


def test_a_gpu_that_is_no_longer_listed_is_lost_and_comes_back(opened: Life) -> None:
    until(lambda: opened.library.watched == [["GPU-a", "GPU-b"]])
    opened.library.uuids.remove("GPU-b")
    opened.ticks(5.5)
    card = opened.session.cards["GPU-b"]
    assert (card.state, card.device, opened.session.counted) == ("lost", None, 1)
    opened.library.uuids.append("GPU-b")
    opened.ticks(5.5)
    until(lambda: card.state == "ok" and opened.is_read("GPU-b"))
    assert opened.session.cards["GPU-b"] is card
    until(lambda: opened.library.watched[-1] == ["GPU-a", "GPU-b"] and len(opened.library.watched) == 2)


def test_a_gpu_that_the_kernel_does_not_have_either_was_taken_away(life: Life, tmp_path: Path) -> None:
    kernel_list(tmp_path, b10="GPU-" + "a" * 36)
    life.start()
    life.await_rest()
    life.library.uuids.remove("GPU-b")
    life.ticks(5.5)
    assert sorted(life.session.cards) == ["GPU-a"]


def test_a_gpu_that_is_counted_without_a_handle_stays_the_same(life: Life, tmp_path: Path) -> None:
    kernel_list(tmp_path, b10="GPU-" + "a" * 36)
    life.library.uuids = ["GPU-a"]
    life.library.missing = [Missing(1, "GPU-b", error("transient")), Missing(2, "", error("transient"))]
    life.start()
    life.await_rest()
    card = life.session.cards["GPU-b"]
    life.ticks(11)
    assert (life.session.counted, life.session.cards["GPU-b"]) == (3, card)
    assert card.state == "unreadable"


def test_the_library_is_opened_anew_for_a_lost_gpu_ever_more_rarely(opened: Life) -> None:
    began = opened.library.opened_at[0]
    opened.library.failing["memory", "GPU-b"] = error("lost")
    until(lambda: opened.session.cards["GPU-b"].state == "lost")
    found = distances(opened, 6, 4000)
    assert opened.library.opened_at[1] - began > 60
    assert found == pytest.approx([65, 120, 240, 480, 600, 600], abs=10)
    del opened.library.failing["memory", "GPU-b"]
    until(lambda: opened.session.cards["GPU-b"].state == "ok")
    opened.ticks(20)
    opened.library.failing["memory", "GPU-b"] = error("lost")
    until(lambda: opened.session.cards["GPU-b"].state == "lost")
    assert distances(opened, 7, 100)[-1] < 110, "the next loss is another one"


def test_a_restart_is_asked_for_until_it_is_granted(opened: Life) -> None:
    opened.library.failing.update({"memory": error("mismatch"), "open": error("mismatch")})
    until(lambda: opened.session._refused is not None)
    opened.ticks(3)
    assert len(opened.restarts) > 1
    assert set(opened.restarts) == {f"the GPU driver was replaced: {error('mismatch')}"}


@pytest.mark.parametrize(("outdated", "asked"), [(False, False), (True, True)])
def test_a_library_that_never_matched_is_restarted_for_only_if_there_is_another(
    life: Life, outdated: bool, asked: bool
) -> None:
    life.library.failing["open"] = error("mismatch")
    life.library.is_outdated = outdated
    life.start()
    life.await_rest()
    assert bool(life.restarts) == asked


def ended_in(life: Life, seconds: float = 0.5) -> float:
    began = time.monotonic()
    life.session.stop(life.clock.monotonic() + seconds)
    return time.monotonic() - began


def test_a_stop_closes_the_library(opened: Life) -> None:
    ended_in(opened, SOON)
    assert not opened.library.is_open
    assert not opened.library.watching


def test_a_stop_without_a_library_is_quick(life: Life) -> None:
    life.library.failing["open"] = error("no_driver")
    life.start()
    life.await_rest()
    assert ended_in(life, SOON) < 1
    assert life.library.calls.get("close", 0) == 0


def _memory(life: Life) -> None:
    life.hang_memory()


def _look(life: Life) -> None:
    life.library.hang("devices")
    life.ticks(4.5)
    life.tick_alone()
    until(lambda: life.library.calls["devices"] == 2)


def _events(life: Life) -> None:
    life.library.hang("wait")
    before = life.library.calls.get("wait", 0)
    until(lambda: life.library.calls.get("wait", 0) > before)


def _shutdown(life: Life) -> None:
    life.library.hang("close")
    life.session.refuse(error("session"))
    life.tick_alone()
    until(lambda: life.library.calls.get("close") == 1)


def _initialisation(life: Life) -> None:
    life.session.refuse(error("session"))
    life.ticks(0.5)
    life.library.hang("open")
    life.ticks(1.5)
    life.tick_alone()
    until(lambda: life.library.calls["open"] == 2)


@pytest.mark.parametrize("hang", [_memory, _look, _events, _shutdown, _initialisation])
def test_a_stop_is_in_time_whatever_hangs_and_closes_the_library_later(
    opened: Life, hang: Callable[[Life], Any]
) -> None:
    hang(opened)
    assert ended_in(opened) < 1
    opened.library.release()
    until(lambda: not opened.library.is_open and not opened.library.watching)
    until(lambda: "gpu session" not in {thread.name for thread in threading.enumerate()})
