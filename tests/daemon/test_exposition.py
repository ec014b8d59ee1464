"""The fast path against prometheus_client, byte for byte."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from oomcast.exposition import Exposition
from oomcast.metric import Exemplar, Histogram, Metric, MetricError, Sample, go_float
from oomcast.store import Store

USED = Metric("oomcast_t_used_bytes", "gauge", 'Help with "quotes", \\ and\nnewline.', ("cgroup", "a"))
KILLS = Metric("oomcast_t_kills_total", "counter", "Kills.", ("owner",))
INFO = Metric("oomcast_t_info", "info", "Info.", ("cgroup", "unit"))
STATE = Metric("oomcast_t_state", "stateset", "State.", ("zz", "aa"), states=("ok", "lost"))
SIZES = Metric("oomcast_t_size_tokens", "histogram", "Sizes.", ("engine",))
PLAIN = Metric("oomcast_t_plain", "gauge", "No labels.")
TABLE = (USED, KILLS, INFO, STATE, SIZES, PLAIN)


def both(store: Store) -> None:
    registry = CollectorRegistry()
    registry.register(store)
    exposition = Exposition(store)
    assert b"".join(exposition.render(False, False)) == generate_latest(registry)
    assert b"".join(exposition.render(True, False)) == generate_openmetrics(registry)  # type: ignore[no-untyped-call] # theirs
    assert gzip.decompress(b"".join(exposition.render(False, True))) == generate_latest(registry)


def test_every_kind_is_byte_equal_to_prometheus_client() -> None:
    store = Store(TABLE)
    trace = Exemplar({"trace_id": 'a"b', "b": "c"}, 131072.0, 1700000000.5)
    store.put(
        "a",
        [
            Sample(USED.series('/a\\b\n"c', ""), 123456789.0),
            Sample(USED.series("/b", "x"), 0),
            Sample(PLAIN.series(), float("inf")),
            Sample(KILLS.series("unit"), 3, 1700000000.25, Exemplar({"pid": "1"}, 1)),
            Sample(KILLS.series("other"), 0),
            Sample(INFO.series("/a", "x.service"), 1),
            Sample(STATE.series("1", "2"), "lost"),
            Sample(SIZES.series("e"), Histogram((("1.0", 1), ("+Inf", 3)), 7.5, {"+Inf": trace}), 1700000000.0),
        ],
    )
    store.put("b", [Sample(USED.series("/other source", "\udcff"), -1.5e-9)])
    both(store)
    text = b"".join(Exposition(store).render(False, False)).decode()
    assert 'oomcast_t_used_bytes{cgroup="/a\\\\b\\n\\"c"} 1.23456789e+08\n' in text
    assert 'oomcast_t_used_bytes{a="\\\\udcff",cgroup="/other source"} -1.5e-09\n' in text


@given(st.lists(st.tuples(st.text(max_size=8), st.floats())))
def test_any_value_and_label(rows: list[tuple[str, float]]) -> None:
    store = Store(TABLE)
    store.put("a", [Sample(USED.series(label, str(i)), value) for i, (label, value) in enumerate(rows)])
    both(store)


def test_a_repeated_scrape_of_the_same_snapshot_is_the_same_object_and_a_new_one_is_not() -> None:
    store = Store(TABLE)
    series = PLAIN.series()
    exposition = Exposition(store)
    store.put("a", [Sample(series, 1)])
    first = exposition.render(False, True)
    assert exposition.render(False, True) is first
    store.put("a", [Sample(series, 2)])
    assert b"oomcast_t_plain 2.0\n" in b"".join(exposition.render(False, False))
    store.drop("a")
    assert exposition.render(False, False) == []


def test_the_cap_drops_what_is_above_it_and_counts_it() -> None:
    capped = Metric("oomcast_t_capped", "gauge", "Capped.", ("cgroup",), max_series=2)
    store = Store([capped])
    store.put("a", [Sample(capped.series(str(i)), i) for i in range(5)])
    assert b"".join(Exposition(store).render(False, False)).count(b"oomcast_t_capped{") == 2
    assert store.dropped() == {capped: 3}
    store.put("a", [])
    assert store.dropped() == {}


def test_a_metric_outside_the_table_is_refused_and_the_old_snapshot_stays() -> None:
    store = Store([PLAIN])
    store.put("a", [Sample(PLAIN.series(), 1)])
    with pytest.raises(MetricError, match="oomcast_t_used_bytes is not in the metric table"):
        store.put("a", [Sample(USED.series("", ""), 1)])
    assert b"oomcast_t_plain 1.0" in b"".join(Exposition(store).render(False, False))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (1e6, "1e+06"),
        (999999, "999999.0"),
        (1.5e300, "1.5e+300"),
        (float("nan"), "NaN"),
        (-1e9, "-1000000000.0"),
    ],
)
def test_numbers_are_written_as_prometheus_client_does(value: float, text: str) -> None:
    assert go_float(value) == text


@pytest.mark.parametrize(
    ("name", "kind", "labels"),
    [
        ("oomcast_x", "counter", ()),
        ("oomcast_x_info", "gauge", ()),
        ("oomcast_x_total", "gauge", ()),
        ("oomcast_x_mb", "gauge", ()),
        ("oomcast_x_count", "gauge", ()),
        ("oomcast_x_created_total", "counter", ()),
        ("oomcast_x_ms_total", "counter", ()),
        ("other_x", "gauge", ()),
        ("oomcast_x", "gauge", ("pod",)),
        ("oomcast_x", "gauge", ("a", "a")),
        ("oomcast_x", "stateset", ()),
    ],
)
def test_a_name_that_breaks_the_contract_is_refused(name: str, kind: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(MetricError):
        Metric(name, kind, "Help.", labels)  # type: ignore[arg-type] # hostile on purpose


def test_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(MetricError, match="got 1 values"):
        USED.series("x")
