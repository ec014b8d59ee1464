"""Collectors that do to the daemon what collectors of strangers may do. What they meet is files in $TROUBLE."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from oomcast.child import Child
from oomcast.contract import Collector, CollectorSettings, CollectorSpec, Context, Facts, NotPresent
from oomcast.metric import Metric, Sample

FILES = Path(os.environ["TROUBLE"])


class Settings(CollectorSettings):
    interval: float = 0.5
    timeout: float = 2.0


class One:
    """A collector made of functions."""

    def __init__(self, collect: Callable[[], Facts]) -> None:
        self.collect = collect


def spec(name: str, create: Callable[[Settings, Context], Collector], *metrics: Metric) -> CollectorSpec:
    return CollectorSpec(name, f"does {name}", Settings, metrics, create)


def gauge(name: str, *labels: str, max_series: int = 1000) -> Metric:
    return Metric(f"oomcast_trouble_{name}", "gauge", "A made-up value.", labels, max_series)


def value(metric: Metric, number: float = 1) -> Facts:
    return Facts([Sample(metric.series(), number)])


COUNT = Metric("oomcast_trouble_good_total", "counter", "Runs of the good one.")
UNIT = gauge("unit_bytes")


class Good:
    """What has to go on whatever the others do: counts its runs, and the instances of itself in a file."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._runs = 0
        with (FILES / "good-made").open("a") as made:
            made.write("x")

    def collect(self) -> Facts:
        self._runs += 1
        return Facts([Sample(COUNT.series(), self._runs), Sample(UNIT.series(), time.monotonic())])


GOOD = spec("good", Good, COUNT, UNIT)


def sleep_in_c() -> Facts:
    # sleep() returns early in a thread that a signal reaches.
    while True:
        ctypes.CDLL(None).sleep(3600)


def read_a_fifo() -> Facts:
    path = FILES / "fifo"
    if not path.exists():
        os.mkfifo(path)
    return Facts([Sample(UNIT.series(), len(os.read(os.open(path, os.O_RDWR), 1)))])


HANGS = spec("hangs", lambda s, c: One(sleep_in_c))
HANGS_FIFO = spec("hangs_fifo", lambda s, c: One(read_a_fifo))


def fail() -> Facts:
    raise ValueError(f"reading {time.monotonic_ns()} failed\nwith a second line {'x' * 100_000}")


def exit_() -> Facts:
    sys.exit("bye")


RAISES = spec("raises", lambda s, c: One(fail))
EXITS = spec("exits", lambda s, c: One(exit_))

ELSEWHERE = gauge("elsewhere")
OUTSIDE = spec("outside", lambda s, c: One(lambda: value(ELSEWHERE)))
TEXT = gauge("text")
NO_NUMBER = spec("no_number", lambda s, c: One(lambda: Facts([Sample(TEXT.series(), "much")])), TEXT)
NOTHING = spec("nothing", lambda s, c: One(lambda: None))  # type: ignore[arg-type, return-value]

MANY = gauge("many", "number", max_series=1000)
FLOOD = spec("flood", lambda s, c: One(lambda: Facts([Sample(MANY.series(str(i)), i) for i in range(10_000)])), MANY)


class SlowSettings(Settings):
    interval: float = 1.0
    timeout: float = 10.0


SLOWLY = gauge("slowly")


def slow() -> Facts:
    time.sleep(3)
    return value(SLOWLY)


SLOW = CollectorSpec("slow", "takes three times its interval", SlowSettings, (SLOWLY,), lambda s, c: One(slow))


def where(name: str, metric: Metric, *, removed: bool = False) -> CollectorSpec:
    def collect() -> Facts:
        if not (FILES / name).exists():
            raise NotPresent(f"{name} is not there", removed=removed)
        return value(metric)

    return spec(name, lambda s, c: One(collect), metric)


ABSENT = where("absent", gauge("absent"))
LATER = where("later", gauge("later"))
VANISHES = where("vanishes", gauge("vanishes"))
REMOVED = where("removed", gauge("removed"), removed=True)


def broken(settings: Settings, context: Context) -> Collector:
    raise RuntimeError("no such library")


class BrokenStart(One):
    def start(self) -> None:
        raise OSError(12, "no thread for you")


class HangsInStop(One):
    def stop(self, deadline: float) -> None:
        threading.Event().wait()


STOPPED = gauge("stopped")
BROKEN = spec("broken", broken)
BROKEN_START = spec("broken_start", lambda s, c: BrokenStart(lambda: Facts()))
HANGS_IN_STOP = spec("hangs_in_stop", lambda s, c: HangsInStop(lambda: value(STOPPED)), STOPPED)


class Parent:
    """Reads from a child that ignores SIGTERM, has children of its own and never says a word."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._clock = context.clock

    def start(self) -> None:
        script = "trap '' TERM; sleep 3600 & sleep 3600 & wait; wait; sleep 3600"
        self._child = Child(["sh", "-c", script], self._clock)
        (FILES / "group").write_text(str(self._child.pid))
        threading.Thread(target=self._child.stdout.read, args=(1,), daemon=True).start()

    def collect(self) -> Facts:
        return Facts()

    def stop(self, deadline: float) -> None:
        self._child.stop(deadline)
        (FILES / "stopped").write_text("done")


PARENT = spec("parent", Parent)


LATER_COUNTED = Metric("oomcast_trouble_later_total", "counter", "Appears with the second run.")


class LaterCount:
    """A counter that is not there on the first run."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._runs = 0

    def collect(self) -> Facts:
        self._runs += 1
        return Facts([Sample(LATER_COUNTED.series(), 7)] if self._runs > 1 else [])


LATER_COUNT = spec("later_count", LaterCount, LATER_COUNTED)


class Restarts:
    """Asks for a restart on each run while $TROUBLE/restart is there, holding a descriptor that would be inherited."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._restart = context.restart
        self._held = os.open("/dev/zero", os.O_RDONLY)
        os.set_inheritable(self._held, True)

    def collect(self) -> Facts:
        if (FILES / "restart").exists():
            self._restart("the library was replaced")
        return Facts()


RESTARTS = spec("restarts", Restarts)
