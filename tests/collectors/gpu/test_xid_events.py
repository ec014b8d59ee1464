"""The watch for Xids: what it pushes, how it goes on after failures, and that it ends in time whatever hangs."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import pytest

from fakes import FakeClock
from oomcast.clock import SystemClock
from oomcast.contract import Event, Facts
from oomcast_collectors.gpu.driver import Device, Driver, DriverError, Fault, Xids, XidSeen
from oomcast_collectors.gpu.xid_events import XidWatch

LOG = logging.getLogger("test.xids")
SOON = 10.0  # seconds after which a test gives up
Step = Callable[[], XidSeen | None]


def lost(fault: Fault = "lost", function: str = "nvmlEventSetWait_v2") -> DriverError:
    return DriverError(fault, function, 15, "GPU is lost")


def failing(error: Exception) -> Step:
    def step() -> XidSeen | None:
        raise error

    return step


@dataclass
class Handle:
    """All of a GPU that the watch asks for."""

    uuid: str


class Steps:
    """A set of events that does one step for each wait, then finds nothing."""

    def __init__(self, steps: list[Step], close: Callable[[], None]) -> None:
        self._steps = steps
        self._close = close
        self.waits: list[float] = []
        self.closed = threading.Event()
        self.idle = threading.Event()

    def wait(self, seconds: float) -> XidSeen | None:
        self.waits.append(seconds)
        if self._steps:
            return self._steps.pop(0)()
        self.idle.set()
        return None

    def close(self) -> None:
        self.closed.set()
        self._close()


class Library:
    """All of a driver that the watch calls. attempts: what each try for a set gives, its steps or why there is none."""

    def __init__(self, *attempts: list[Step] | DriverError) -> None:
        self._attempts = list(attempts)
        self.made: list[Steps] = []
        self.watched: list[str] = []
        self.closing: Callable[[], None] = lambda: None

    def xids(self, devices: Sequence[Device]) -> Xids:
        self.watched = [device.uuid for device in devices]
        attempt: list[Step] | DriverError = self._attempts.pop(0) if self._attempts else []
        if isinstance(attempt, DriverError):
            raise attempt
        self.made.append(Steps(attempt, self.closing))
        return self.made[-1]


class Watched:
    """A watch with what it pushed. No rest takes any time; they are noted, the pauses apart from the short ones."""

    def __init__(self, library: Library, *uuids: str, clock: FakeClock | None = None) -> None:
        self.library = library
        self.clock = clock or FakeClock()
        self.pushed: queue.Queue[Event] = queue.Queue()
        self.pauses: list[float] = []
        self.early: list[float] = []
        devices = [cast(Device, Handle(uuid)) for uuid in uuids or ("GPU-a", "GPU-b")]
        self.watch = XidWatch(cast(Driver, library), devices, self.clock, self._push, LOG, self._rest)

    def _push(self, facts: Facts) -> None:
        assert (facts.samples, facts.levels) == ([], [])
        for event in facts.events:
            self.pushed.put(event)

    def _rest(self, stopping: threading.Event, seconds: float) -> None:
        (self.pauses if seconds >= 1 else self.early).append(seconds)
        stopping.wait(0.001)

    def idle(self) -> Steps:
        """The set that has nothing more to tell."""
        self.until(lambda: bool(self.library.made) and self.library.made[-1].idle.is_set())
        return self.library.made[-1]

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + SOON
        while not condition():
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.002)


@contextmanager
def watching(library: Library, *uuids: str) -> Iterator[Watched]:
    watched = Watched(library, *uuids)
    watched.watch.start()
    try:
        yield watched
    finally:
        watched.watch.stop(watched.clock.monotonic() + SOON)
        assert watched.watch.drained


def test_each_xid_is_pushed_as_an_event() -> None:
    steps: list[Step] = [lambda: XidSeen("GPU-b", 79), lambda: None, lambda: XidSeen("GPU-a", 999)]
    with watching(Library(steps)) as watched:
        found = [watched.pushed.get(timeout=SOON) for _ in range(2)]
        made = watched.idle()
    fields: dict[str, str | int | float] = {"gpu": "GPU-b", "xid": 79, "witness": "nvml"}
    assert found[0] == Event("xid", 1_700_000_000.0, 1000.0, "Xid 79 on GPU GPU-b", fields)
    assert found[1].fields == {"gpu": "GPU-a", "xid": 999, "witness": "nvml"}
    assert watched.library.watched == ["GPU-a", "GPU-b"]
    assert set(made.waits) == {1.0}
    assert (len(watched.library.made), made.closed.is_set()) == (1, True)
    assert watched.pauses == []


def test_an_error_without_a_gpu_is_of_the_only_one() -> None:
    for uuids, gpu in ((("GPU-a",), "GPU-a"), (("GPU-a", "GPU-b"), "")):
        with watching(Library([lambda: XidSeen("", 48)]), *uuids) as watched:
            assert watched.pushed.get(timeout=SOON).fields["gpu"] == gpu


def test_a_wait_that_returns_at_once_does_not_spin() -> None:
    with watching(Library()) as watched:
        watched.until(lambda: len(watched.early) > 3)
    assert set(watched.early) == {0.1}
    assert abs(len(watched.library.made[0].waits) - len(watched.early)) <= 1


@pytest.mark.parametrize("where", ["wait", "making"])
def test_a_failed_set_is_made_anew(where: str, caplog: pytest.LogCaptureFixture) -> None:
    first: list[Step] | DriverError = [failing(lost())] if where == "wait" else lost()
    with watching(Library(first, [lambda: XidSeen("GPU-a", 79)])) as watched:
        assert watched.pushed.get(timeout=SOON).fields["xid"] == 79
    assert watched.pauses == [1.0]
    assert all(made.closed.is_set() for made in watched.library.made)
    assert [record.getMessage() for record in caplog.records] == [
        "GPU errors (Xid) are not watched: nvmlEventSetWait_v2: GPU is lost (15)"
    ]


def test_the_pauses_grow_to_a_minute_and_one_cause_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with watching(Library(*[lost()] * 5, *([failing(lost())] for _ in range(4)))) as watched:
        watched.idle()
    assert watched.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert len(caplog.records) == 1


def test_after_a_minute_that_went_well_the_pauses_are_short_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()

    def a_minute_later() -> None:
        clock.advance(61)

    watched = Watched(Library(lost(), lost(), [a_minute_later, failing(lost())]), clock=clock)
    watched.watch.start()
    watched.idle()
    watched.watch.stop(watched.clock.monotonic() + SOON)
    assert watched.pauses == [1.0, 2.0, 1.0]
    assert [record.getMessage()[:29] for record in caplog.records] == [
        "GPU errors (Xid) are not watc",
        "GPU errors (Xid) are watched",
        "GPU errors (Xid) are not watc",
    ]


@pytest.mark.parametrize("where", ["wait", "making"])
def test_without_support_the_watch_ends_for_good(where: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    none = lost("unsupported")
    with watching(Library([failing(none)] if where == "wait" else none)) as watched:
        watched.until(lambda: watched.watch.drained)
    assert watched.pauses == []
    assert len(watched.library.made) == (where == "wait")
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_set_that_does_not_close_is_no_reason_to_end(caplog: pytest.LogCaptureFixture) -> None:
    library = Library([failing(lost())], [lambda: XidSeen("GPU-a", 79)])

    def refuse() -> None:
        raise lost("unsupported", "nvmlEventSetFree")

    library.closing = refuse
    with watching(library) as watched:
        assert watched.pushed.get(timeout=SOON).fields["xid"] == 79
    assert [record.getMessage() for record in caplog.records] == [
        "a set of GPU events is left open: nvmlEventSetFree: GPU is lost (15)",
        "GPU errors (Xid) are not watched: nvmlEventSetWait_v2: GPU is lost (15)",
    ]


def test_a_defect_is_told_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    with watching(Library([failing(TypeError("a defect"))])) as watched:
        watched.until(lambda: watched.watch.drained)
    assert watched.library.made[0].closed.is_set()
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["a defect"]


def test_stop_returns_in_time_while_the_driver_hangs_and_what_it_tells_then_is_dropped() -> None:
    entered, release = threading.Event(), threading.Event()

    def hang() -> XidSeen | None:
        entered.set()
        assert release.wait(SOON)
        return XidSeen("GPU-a", 79)

    with watching(Library([hang])) as watched:
        assert entered.wait(SOON)
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "gpu-xids"] == [True]
        began = time.monotonic()
        watched.watch.stop(watched.clock.monotonic() + 0.05)
        assert time.monotonic() - began < SOON / 2
        assert not watched.watch.drained
        release.set()
        watched.until(lambda: watched.watch.drained)
    assert watched.library.made[0].closed.is_set()
    assert watched.pushed.empty()


def test_stop_ends_a_pause() -> None:
    clock = SystemClock()
    library = cast(Driver, Library(*[lost()] * 9))
    watch = XidWatch(library, [cast(Device, Handle("GPU-a"))], clock, lambda facts: None, LOG)
    watch.start()
    began = time.monotonic()
    watch.stop(clock.monotonic() + SOON)
    assert watch.drained
    assert time.monotonic() - began < 1.0


def test_a_watch_that_never_began_is_drained() -> None:
    watched = Watched(Library())
    assert watched.watch.drained
    watched.watch.stop(watched.clock.monotonic() + SOON)
