"""Series that are replaced between two runs: what stays, what is refused, and what two writers at once may do."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.metric import Metric, MetricError, Sample
from oomcast.store import Store

USED = Metric("oomcast_t_used_bytes", "gauge", "Used.", ("gpu",))
PEAK = Metric("oomcast_t_peak_bytes", "gauge", "Peak.", ("gpu",), max_series=2)
TOTAL = Metric("oomcast_t_seen_total", "counter", "Seen.")
ELSEWHERE = Metric("oomcast_t_elsewhere", "gauge", "In no table.")


def values(store: Store) -> dict[str, object]:
    return {s.series.head.strip(): s.value for _, groups in store.families() for group in groups for s in group}


def peak(gpu: str, value: float) -> Sample:
    return Sample(PEAK.series(gpu), value)


def test_the_same_series_is_replaced_and_the_rest_stays() -> None:
    store = Store([USED, PEAK])
    series = USED.series("b")
    store.put("gpu", [Sample(USED.series("a"), 1), Sample(series, 2), Sample(USED.series("c"), 3), peak("a", 4)])
    store.put("other", [Sample(USED.series("x"), 9)])
    store.amend("gpu", [Sample(series, 20), Sample(USED.series("c"), 30)], 1.0)
    assert values(store) == {
        'oomcast_t_used_bytes{gpu="a"}': 1,
        'oomcast_t_used_bytes{gpu="b"}': 20,
        'oomcast_t_used_bytes{gpu="c"}': 30,
        'oomcast_t_used_bytes{gpu="x"}': 9,
        'oomcast_t_peak_bytes{gpu="a"}': 4,
    }
    assert store.count("gpu") == 4


def test_the_next_run_replaces_what_was_pushed_before_it_began() -> None:
    store = Store([PEAK])
    store.put("gpu", [peak("a", 1)])
    store.amend("gpu", [peak("a", 5), peak("b", 6)], 10.0)
    store.put("gpu", [peak("a", 2)], began=10.1)
    assert values(store) == {'oomcast_t_peak_bytes{gpu="a"}': 2}


def test_what_is_pushed_while_a_run_goes_on_outlasts_that_run_and_no_other() -> None:
    store = Store([PEAK, USED])
    store.put("gpu", [peak("a", 1)])
    store.amend("gpu", [peak("a", 4)], 9.0)
    store.amend("gpu", [peak("b", 5)], 10.0)
    run = [peak("a", 2), peak("b", 3), Sample(USED.series("a"), 7)]
    store.put("gpu", run, began=9.5)
    after = {'oomcast_t_peak_bytes{gpu="a"}': 2, 'oomcast_t_used_bytes{gpu="a"}': 7}
    assert values(store) == after | {'oomcast_t_peak_bytes{gpu="b"}': 5}
    store.put("gpu", run, began=10.5)
    assert values(store) == after | {'oomcast_t_peak_bytes{gpu="b"}': 3}


def test_a_source_with_nothing_published_is_left_so() -> None:
    store = Store([PEAK])
    store.amend("gpu", [peak("a", 1)], 1.0)
    store.put("gpu", [peak("a", 1)])
    store.drop("gpu")
    version = store.version
    store.amend("gpu", [peak("a", 2)], 2.0)
    assert (values(store), store.version) == ({}, version)
    store.put("gpu", [], began=0.0)
    assert values(store) == {}


def test_the_cap_holds_and_each_series_that_it_keeps_out_is_counted_once() -> None:
    store = Store([PEAK])
    store.put("gpu", [peak(gpu, 1) for gpu in "abc"])
    assert store.dropped() == {PEAK: 1}
    for gpu in "ccdda":
        store.amend("gpu", [peak(gpu, 2)], 1.0)
    assert values(store) == {'oomcast_t_peak_bytes{gpu="a"}': 2, 'oomcast_t_peak_bytes{gpu="b"}': 1}
    assert store.dropped() == {PEAK: 2}


def test_a_metric_outside_the_table_is_refused_and_nothing_changes() -> None:
    store = Store([PEAK])
    store.put("gpu", [peak("a", 1)])
    with pytest.raises(MetricError, match="oomcast_t_elsewhere is not in the metric table"):
        store.amend("gpu", [peak("a", 2), Sample(ELSEWHERE.series(), 1)], 1.0)
    assert values(store) == {'oomcast_t_peak_bytes{gpu="a"}': 1}


def test_a_reader_keeps_what_it_has_and_what_was_not_named_is_not_copied() -> None:
    store = Store([PEAK, USED])
    store.put("gpu", [peak("a", 1), Sample(USED.series("a"), 1)])
    before = dict(store.families())
    store.amend("gpu", [peak("a", 2)], 1.0)
    after = dict(store.families())
    assert [sample.value for sample in before[PEAK][0]] == [1]
    assert after[USED][0] is before[USED][0]


STEP = st.tuples(st.sampled_from(["put", "amend", "drop"]), st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)))


@given(st.lists(STEP, max_size=30))
def test_it_does_what_a_dict_does(steps: list[tuple[str, dict[str, int]]]) -> None:
    store = Store([USED])
    model: dict[str, int] | None = None
    for time_, (step, given_) in enumerate(steps):
        samples = [Sample(USED.series(gpu), value) for gpu, value in given_.items()]
        if step == "put":
            store.put("gpu", samples, began=time_)
            model = dict(given_)
        elif step == "amend":
            store.amend("gpu", samples, time_)
            model = None if model is None else {**model, **given_}
        else:
            store.drop("gpu")
            model = None
        assert values(store) == {f'oomcast_t_used_bytes{{gpu="{gpu}"}}': v for gpu, v in (model or {}).items()}


def test_a_counter_never_falls_however_runs_and_pushes_meet() -> None:
    store = Store([TOTAL])
    series, lock, over = TOTAL.series(), threading.Lock(), threading.Event()
    seen = 0

    def push() -> None:
        nonlocal seen
        while not over.is_set():
            with lock:
                seen += 1
                store.amend("gpu", [Sample(series, seen)], time.monotonic())

    def published() -> int:
        value = values(store)["oomcast_t_seen_total"]
        assert isinstance(value, int)
        return value

    store.put("gpu", [Sample(series, 0)])
    overtaken = 0
    thread = threading.Thread(target=push)
    thread.start()
    try:
        while overtaken < 100:
            assert thread.is_alive()
            began = time.monotonic()
            with lock:
                read = seen
            time.sleep(0)  # lets the other one in
            before = published()
            store.put("gpu", [Sample(series, read)], began)
            assert published() >= before
            overtaken += before > read
    finally:
        over.set()
        thread.join(10)
