"""What of an engine becomes samples, and what is left out."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace

import pytest

from collectors.engine.kind_pages import CAPTURES, WRITTEN, reading, text
from collectors.engine.pages import page
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast.metric import Histogram, Series
from oomcast.slo import Slo
from oomcast_collectors.engine import metrics
from oomcast_collectors.engine.reading import Lengths, Pool, Reading
from oomcast_collectors.engine.settings import Endpoint, EngineSettings
from oomcast_collectors.engine.tell import Teller
from oomcast_collectors.engine.watch import EngineWatch


class Told:
    """What is told of an engine after looks that found these readings."""

    def __init__(self, slo: Slo | None = None) -> None:
        self.clock = FakeClock()
        endpoint = Endpoint.model_validate({"url": "http://user:geheim@127.0.0.1:1"})
        context = Context(Roots(), self.clock, logging.getLogger("test_tell"), lambda facts: None, slo=slo or Slo())
        self.watch = EngineWatch(endpoint, "a", EngineSettings.model_validate({}), context, "/pod")
        self.teller = Teller(self.watch)

    def take(self, found: Reading | None) -> Mapping[str, float | str | Histogram]:
        """By name and labels as text, after one more look, a second later."""
        self.clock.advance(1)
        if found is None:
            self.watch._failed("refused", "nobody listens", logging.WARNING, self.clock.monotonic())
        else:
            self.watch._take(found, self.clock.monotonic())
        return self.samples()

    def samples(self) -> Mapping[str, float | str | Histogram]:
        samples = self.teller.samples()
        told = {_short(sample.series): sample.value for sample in samples}
        assert len(told) == len(samples)
        return told


def _short(series: Series) -> str:
    return series.metric.name + str({label: value for label, value in series.labels if label != "engine"})


def test_nothing_before_the_first_look() -> None:
    assert Told().samples() == {}


@pytest.mark.parametrize("name", [*CAPTURES, *WRITTEN])
def test_every_page_gives_series_that_are_there_once_and_stay_the_same(name: str) -> None:
    told = Told()
    found = reading(text(name))
    first = told.take(found)
    assert first["oomcast_engine_up{}"] == 1
    assert told.take(found).keys() == first.keys()
    assert all(sample.series.metric in metrics.METRICS for sample in told.teller.samples())


def test_series_are_made_once() -> None:
    told = Told()
    told.take(reading(text(CAPTURES[0])))
    assert [one.series for one in told.teller.samples()] == [one.series for one in told.teller.samples()]


def test_an_engine_that_does_not_tell_has_no_series_for_it() -> None:
    assert told_names(Reading("tgi")) == {
        "oomcast_engine_up", "oomcast_engine_info", "oomcast_engine_restarts_total",
        "oomcast_engine_scrape_duration_seconds", "oomcast_engine_scrape_malformed_lines_total",
    }  # fmt: skip


def told_names(found: Reading) -> set[str]:
    return {name.partition("{")[0] for name in Told().take(found)}


def test_of_an_engine_that_is_down_the_counters_stay() -> None:
    told = Told()
    lengths = Lengths(((10.0, 1.0), (float("inf"), 2.0)), 15.0, 2.0)
    found = page(lengths=lengths, preemptions=3, finished={"stop": 5})
    up = told.take(replace(found, pools=(Pool(usage=0.5),), running=1.0))
    down = told.take(None)
    gone = up.keys() - down.keys()
    assert {name.partition("{")[0] for name in gone} == {
        "oomcast_engine_info", "oomcast_kv_cache_usage_ratio", "oomcast_engine_requests_running"
    }  # fmt: skip
    assert down["oomcast_engine_up{}"] == 0
    assert down["oomcast_engine_scrape_errors_total{'reason': 'refused'}"] == 1
    assert down["oomcast_engine_preemptions_total{}"] == 3
    assert down["oomcast_engine_requests_finished_total{'reason': 'stop'}"] == 5
    assert down["oomcast_prompt_tokens{}"] == Histogram((("10.0", 1.0), ("+Inf", 2.0)), 15.0)
    assert down["oomcast_engine_state{}"] == "unreachable"


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ((), ""),
        ((Pool("0", 0.5),), ""),
        ((Pool("0", 0.5, 100),), "exact"),
        ((Pool("0", 0.5, 100), Pool("1", 0.5, 100, exact=False)), "approximate"),
    ],
)
def test_the_info(pools: tuple[Pool, ...], expected: str) -> None:
    told = Told()
    told.take(Reading("vllm", pools, model="m", version="1"))
    labels = next(dict(s.series.labels) for s in told.teller.samples() if s.series.metric is metrics.INFO)
    assert labels.pop("capacity", "") == expected
    # Of the address no user and no password.
    assert labels == {
        "engine": "a", "kind": "vllm", "model": "m", "version": "1", "address": "127.0.0.1:1", "cgroup": "/pod"
    }  # fmt: skip


def test_counts_of_an_unknown_unit_give_a_ratio_alone() -> None:
    told = Told()
    names: set[str] = set()
    for total in (0.0, 20_000.0):
        found = page(queries=total, hits=total / 4)
        samples = told.take(found)
        names |= samples.keys()
    assert samples["oomcast_kv_cache_hit_ratio{}"] == 0.25
    assert not [name for name in names if "queries" in name or "hits" in name]
    # Once it is known the counters are told, and go on to be while the engine is down.
    told.take(replace(found, cache_unit="tokens"))
    assert told.take(None)["oomcast_kv_cache_queries_total{}"] == 20_000


def test_shares_of_long_prompts_have_both_bounds() -> None:
    told = Told()
    infinite = float("inf")
    told.take(Reading("vllm", lengths=Lengths(((100_000.0, 0.0), (infinite, 0.0)), 0.0, 0.0)))
    samples = told.take(Reading("vllm", lengths=Lengths(((100_000.0, 3.0), (infinite, 4.0)), 500_000.0, 4.0)))
    shares = {name: value for name, value in samples.items() if "share" in name}
    assert len(shares) == 8
    assert shares["oomcast_prompt_tokens_share_ratio{'above': '65536', 'bound': 'lower'}"] == 0.25
    assert shares["oomcast_prompt_tokens_share_ratio{'above': '65536', 'bound': 'upper'}"] == 1


def test_telling_while_looks_go_on_trips_over_nothing() -> None:
    told = Told()
    told.take(page(finished={"0": 0.0}))
    failures: list[BaseException] = []
    done = threading.Event()

    def tell() -> None:
        try:
            while not done.is_set():
                told.teller.samples()
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=tell, name="test-tell", daemon=True)
    thread.start()
    for number in range(700):
        told.take(page(finished={str(n): 1.0 for n in range(number % 45)}))
    done.set()
    thread.join(5)
    assert failures == []
