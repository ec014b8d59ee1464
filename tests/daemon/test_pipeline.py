import logging
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from collectors.cgroup import trees
from collectors.cgroup.support import MIB, Bench, v2
from fakes import FakeClock
from oomcast.contract import Event, Facts, Level
from oomcast.core import CORE_METRICS
from oomcast.exposition import Exposition
from oomcast.forecast import Forecaster
from oomcast.metric import Histogram, Metric, MetricError, Sample
from oomcast.pipeline import XIDS, Pipeline
from oomcast.reconcile import Reconciler
from oomcast.store import Store
from oomcast.timeline import Timeline
from oomcast.xids import XidReconciler

GAUGE = Metric("oomcast_test_gauge", "gauge", "A test's.")
COUNTER = Metric("oomcast_test_total", "counter", "A test's.")
INFO = Metric("oomcast_test_info", "info", "A test's.", ("version",))
STATES = Metric("oomcast_test_state", "stateset", "A test's.", states=("on", "off"))
HISTOGRAM = Metric("oomcast_test_size_bytes", "histogram", "A test's.")
SMALL = Metric("oomcast_test_small", "gauge", "A test's.", ("n",), max_series=1)
OURS = (GAUGE, COUNTER, INFO, STATES, HISTOGRAM, SMALL)
FORECAST = 'oomcast_time_to_exhaustion_seconds{cgroup="/a",resource="cgroup_memory"} +Inf'
SIZES = Histogram((("1.0", 1), ("+Inf", 2)), 3)


class Made:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Store([*CORE_METRICS, *OURS])
        self.timeline = Timeline()
        reconciler = Reconciler(self.clock, lambda path: path, logging.getLogger("test"))
        others = {XIDS: XidReconciler(self.clock, logging.getLogger("test"))}
        self.pipeline = Pipeline(self.store, Forecaster(), self.timeline, reconciler, self.clock, others)

    def watch(self, run: Callable[[], None]) -> None:
        """Half a minute of runs: what a forecast needs is seconds."""
        for _ in range(30):
            self.clock.advance(1)
            run()

    def lines(self) -> list[str]:
        text = b"".join(Exposition(self.store).render(openmetrics=False, gzip=False)).decode()
        return [line for line in text.splitlines() if not line.startswith("#")]

    def kills(self) -> set[str]:
        """The owner and limit owner of each counter of kills, which all are at 0."""
        self.pipeline.settle()
        counts = [
            re.match(r'oomcast_oom_kills_total{limit_owner="(.*)",owner="(.*)"} 0.0', line) for line in self.lines()
        ]
        return {f"{count[2]} {count[1]}" for count in counts if count}


def level(used: float, path: str = "/a", capacity: float = 1000, within: str = "") -> Level:
    return Level("cgroup_memory", (("cgroup", path),), used, capacity, within=within)


def test_samples_levels_and_events_each_find_their_place() -> None:
    made = Made()
    event = Event("xid", 1.0, 1.0, "Xid 48")
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)], [], [event]))
    made.watch(lambda: made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)], [level(100)])))
    assert set(made.lines()) == {"oomcast_test_gauge 5.0", FORECAST}
    assert made.timeline.last(5) == [event]
    made.pipeline.settle()
    # A kill counter that is there before the first kill.
    assert 'oomcast_oom_kills_total{limit_owner="/a",owner="/a"} 0.0' in made.lines()


def test_a_kill_counter_of_the_limit_that_binds_is_there_before_the_first_kill() -> None:
    made = Made()
    levels = [
        level(0, "/low", 700),
        level(0, "/low/high", 900, "/low"),
        level(0, "/low/high/higher", 1000, "/low/high"),
        level(0, "/low/high/lowest", 600, "/low/high"),
        level(0, "/low/same", 700, "/low"),
        level(0, "/low/hidden", 900, "/elsewhere"),
        Level("host_memory", (), 0, 1),
    ]
    made.pipeline.accept("test", Facts(levels=levels))
    assert made.kills() == {
        "/low /low",
        "/low/high /low/high",
        "/low/high /low",
        "/low/high/higher /low/high/higher",
        "/low/high/higher /low",
        "/low/high/lowest /low/high/lowest",
        "/low/same /low/same",
        "/low/hidden /low/hidden",
    }


def test_the_cgroup_collector_tells_whose_limit_binds(tmp_path: Path) -> None:
    made, host = Made(), trees.copy("v2-root", tmp_path)
    host.write("/pod", v2(limit=300 * MIB))
    host.write("/pod/slice", v2())
    host.write("/pod/slice/engine", v2(limit=400 * MIB))
    host.write("/pod/slice/small", v2(limit=200 * MIB))
    with closing(Bench(host)) as bench:
        made.pipeline.accept("cgroup", Facts(levels=bench.run().facts.levels))
    assert made.kills() == {
        "/pod /pod",
        "/pod/slice/engine /pod/slice/engine",
        "/pod/slice/engine /pod",
        "/pod/slice/small /pod/slice/small",
    }


def test_a_limit_around_many_leaves_counters_to_others() -> None:
    made = Made()
    levels = [level(0, "/low", 700), *(level(0, f"/low/{number}", 900, "/low") for number in range(150))]
    made.pipeline.accept("test", Facts(levels=levels))
    assert len(made.kills()) == 151 + 100


def test_an_xid_is_counted_and_told_once() -> None:
    made = Made()
    made.pipeline.push("test")(
        Facts(
            events=[
                Event("gpu_seen", 1.0, 1.0, "GPU-a", {"gpu": "GPU-a", "pci": "0000:3b:00.0"}),
                Event("xid", 2.0, 1.0, "Xid 48", {"pci": "0000:3b:00.0", "xid": 48}),
                Event("xid", 2.0, 1.0, "Xid 48", {"gpu": "GPU-a", "xid": 48, "witness": "nvml"}),
            ]
        )
    )
    made.clock.advance(2)
    for _ in range(2):
        made.pipeline.settle()
    assert 'oomcast_xid_errors_total{gpu="GPU-a",xid="48"} 1.0' in made.lines()
    assert [event.kind for event in made.timeline.last(9)] == ["gpu_seen", "xid", "xid", "xid_counted"]


def test_what_is_withdrawn_is_gone_with_its_forecast_and_its_count_of_what_was_left_out() -> None:
    made = Made()
    samples = [Sample(SMALL.series(str(n)), n) for n in range(3)]
    made.watch(lambda: made.pipeline.accept("test", Facts(samples, [level(100)])))
    assert FORECAST in made.lines()
    assert made.store.dropped() == {SMALL: 2}
    made.pipeline.withdraw("test")
    assert [line for line in made.lines() if "/a" in line or "test" in line] == []
    assert made.store.dropped() == {}


def test_a_run_without_levels_ends_what_was_forecast_and_a_push_without_them_does_not() -> None:
    made = Made()
    made.watch(lambda: made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)], [level(100)])))
    made.pipeline.push("test")(Facts())
    made.pipeline.accept("another", Facts())
    assert FORECAST in made.lines()
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)]))
    assert FORECAST not in made.lines()
    assert "oomcast_test_gauge 5.0" in made.lines()


def test_pushed_levels_and_events_leave_the_samples_alone() -> None:
    made = Made()
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)]))
    made.watch(lambda: made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)], [level(200)])))
    made.pipeline.push("test")(Facts([], [level(200)], [Event("a", 1.0, 1.0, "b")]))
    assert set(made.lines()) == {"oomcast_test_gauge 5.0", FORECAST}
    assert [event.kind for event in made.timeline.last(5)] == ["a"]


def test_every_kind_with_its_value() -> None:
    made = Made()
    made.pipeline.accept(
        "test",
        Facts(
            [
                Sample(GAUGE.series(), float("inf")),
                Sample(COUNTER.series(), True),
                Sample(INFO.series("1"), 1),
                Sample(STATES.series(), "off"),
                Sample(HISTOGRAM.series(), SIZES),
            ]
        ),
    )
    assert made.lines() == [
        "oomcast_test_gauge +Inf",
        "oomcast_test_total 1.0",
        'oomcast_test_info{version="1"} 1.0',
        'oomcast_test_state{oomcast_test_state="on"} 0.0',
        'oomcast_test_state{oomcast_test_state="off"} 1.0',
        'oomcast_test_size_bytes_bucket{le="1.0"} 1.0',
        'oomcast_test_size_bytes_bucket{le="+Inf"} 2.0',
        "oomcast_test_size_bytes_count 2.0",
        "oomcast_test_size_bytes_sum 3.0",
    ]


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (Sample(GAUGE.series(), "5"), "oomcast_test_gauge is a gauge and cannot be a str"),
        (Sample(GAUGE.series(), None), "oomcast_test_gauge is a gauge and cannot be a NoneType"),  # type: ignore[arg-type]
        (Sample(COUNTER.series(), SIZES), "oomcast_test_total is a counter and cannot be a Histogram"),
        (Sample(STATES.series(), "ajar"), "oomcast_test_state is a stateset and cannot be a str"),
        (
            Sample(Metric("oomcast_elsewhere", "gauge", "None of ours.").series(), 1),
            "oomcast_elsewhere is not in the metric table of this daemon",
        ),
    ],
)
def test_a_sample_that_would_spoil_the_scrape_is_refused_as_a_whole(sample: Sample, reason: str) -> None:
    made = Made()
    with pytest.raises(MetricError) as caught:
        made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 1), sample]))
    assert str(caught.value) == reason
    assert made.lines() == []


def test_pushed_samples_replace_those_of_the_last_run_until_the_next_one() -> None:
    made = Made()
    push = made.pipeline.push("test")
    push(Facts([Sample(GAUGE.series(), 1)]))
    assert made.lines() == []
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5), Sample(COUNTER.series(), 1)]), made.clock.mono)
    made.clock.advance(0.5)
    push(Facts([Sample(GAUGE.series(), 8), Sample(INFO.series("1"), 1)], [], [Event("a", 1.0, 1.0, "b")]))
    assert made.lines() == ["oomcast_test_gauge 8.0", "oomcast_test_total 1.0", 'oomcast_test_info{version="1"} 1.0']
    assert [event.kind for event in made.timeline.last(5)] == ["a"]
    began = made.clock.mono - 0.1
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 6)]), began)
    assert "oomcast_test_gauge 8.0" in made.lines()
    made.clock.advance(0.5)
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 7)]), made.clock.mono)
    assert made.lines() == ["oomcast_test_gauge 7.0"]
    made.pipeline.withdraw("test")
    push(Facts([Sample(GAUGE.series(), 9)]))
    assert made.lines() == []


def test_a_pushed_sample_that_would_spoil_the_scrape_is_refused_with_all_that_came_with_it() -> None:
    made = Made()
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)]))
    with pytest.raises(MetricError, match="oomcast_test_gauge is a gauge and cannot be a str"):
        made.pipeline.push("test")(
            Facts([Sample(COUNTER.series(), 1), Sample(GAUGE.series(), "5")], [], [Event("a", 1.0, 1.0, "b")])
        )
    assert made.lines() == ["oomcast_test_gauge 5.0"]
    assert made.timeline.last(5) == []


def test_what_a_replaced_collector_pushes_late_is_dropped() -> None:
    made = Made()
    old, other = made.pipeline.push("test"), made.pipeline.push("other")
    new = made.pipeline.push("test")
    made.pipeline.accept("test", Facts([Sample(GAUGE.series(), 5)]))
    old(Facts([Sample(GAUGE.series(), 9)], [level(200)], [Event("old", 1.0, 1.0, "b")]))
    assert made.lines() == ["oomcast_test_gauge 5.0"]
    new(Facts([Sample(GAUGE.series(), 6)]))
    other(Facts([], [], [Event("other", 1.0, 1.0, "b")]))
    assert made.lines() == ["oomcast_test_gauge 6.0"]
    assert [event.kind for event in made.timeline.last(5)] == ["other"]
