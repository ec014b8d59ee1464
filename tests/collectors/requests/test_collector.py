"""What messages become, through a real socket."""

from typing import Any

import pytest

from collectors.requests.support import TRACE, Bench, exemplar, name, prompts, settle, trace, values
from fakes import FakeClock
from oomcast.contract import NotPresent
from oomcast.slo import LengthClass, Slo
from oomcast_collectors.requests import metrics
from oomcast_collectors.requests.totals import IDLE
from oomcast_collectors.slo.metrics import METRICS as SLO


def test_without_a_socket_in_the_settings_there_is_nothing(bench: Bench) -> None:
    with pytest.raises(NotPresent, match="no socket is set"):
        bench.collector(socket=None).collect()


def test_the_intakes_counters_begin_at_zero_and_engines_come_with_their_first_message(bench: Bench) -> None:
    collector, sender = bench.receiving()
    intake = {f'messages_total{{outcome="{one}"}}': 0 for one in metrics.OUTCOMES}
    intake |= {"messages_lost_total": 0, "malformed_trace_ids_total": 0}
    assert values(collector, zeros=True) == intake
    sender.message()
    assert settle(collector, sender) == {"accepted": 1}
    samples = [one for one in collector.collect().samples if name(one) not in intake]
    assert {one.series.metric for one in samples} == {
        metric for metric in metrics.METRICS if "engine" in metric.labels and metric not in SLO
    }
    up_to = [one for one in samples if one.series.metric is metrics.EMPTY]
    assert [dict(one.series.labels)["up_to"] for one in up_to] == [
        *("512", "2048", "65536", "131072", "200000", "+Inf", "unknown")
    ]
    # As scraped: the histogram is a series for each bucket, its count and its sum.
    assert len(samples) - 1 + len(prompts(collector).buckets) + 2 < 60


def test_one_message_with_everything(bench: Bench) -> None:
    collector, sender = bench.receiving()
    sender.message(
        **{"prompt_tokens": 131_500, "output_tokens": 12, "cached_tokens": 500, "status": 500, "empty": True},
        **{"user": False, "tenant": False, "retries": 3, "breaker": "open", "lost": 4, "trace_id": "none"},
    )
    settle(collector, sender)
    assert values(collector) == {
        'messages_total{outcome="accepted"}': 1,
        "messages_lost_total": 4,
        "malformed_trace_ids_total": 1,
        'responses_total{code="5xx",engine="llama",up_to="200000"}': 1,
        'empty_responses_total{engine="llama",up_to="200000"}': 1,
        'untraced_responses_total{engine="llama",up_to="200000"}': 1,
        'output_tokens_total{engine="llama"}': 12,
        'cached_tokens_total{engine="llama"}': 500,
        'unidentified_total{engine="llama",missing="user"}': 1,
        'unidentified_total{engine="llama",missing="tenant"}': 1,
        'retries_total{engine="llama"}': 3,
        'breaker_total{engine="llama",state="open"}': 1,
    }


def test_one_message_with_nothing_bad(bench: Bench) -> None:
    collector, sender = bench.receiving()
    sender.message(user=True, tenant=True, retries=0, breaker="closed", output_tokens=1, empty=False)
    sender.message()
    settle(collector, sender)
    assert values(collector) == {
        'messages_total{outcome="accepted"}': 2,
        'responses_total{code="2xx",engine="llama",up_to="2048"}': 2,
        'output_tokens_total{engine="llama"}': 1,
        'breaker_total{engine="llama",state="closed"}': 1,
    }


@pytest.mark.parametrize(
    ("status", "code"),
    [(101, "2xx"), (200, "2xx"), (299, "2xx"), (304, "3xx"), (400, "4xx"), (499, "4xx"), (500, "5xx"), (599, "5xx")],
)
def test_codes(bench: Bench, status: int, code: str) -> None:
    collector, sender = bench.receiving()
    sender.message(status=status)
    settle(collector, sender)
    assert values(collector)[f'responses_total{{code="{code}",engine="llama",up_to="2048"}}'] == 1


@pytest.mark.parametrize(
    ("tokens", "up_to", "bucket"),
    [
        (0, "512", "512.0"),
        (512, "512", "512.0"),
        (513, "2048", "2048.0"),
        (2049, "65536", "8192.0"),
        (65_536, "65536", "65536.0"),
        (131_073, "200000", "200000.0"),
        (200_001, "+Inf", "262144.0"),
        (1 << 40, "+Inf", "+Inf"),
    ],
)
def test_classes_and_buckets(bench: Bench, tokens: int, up_to: str, bucket: str) -> None:
    collector, sender = bench.receiving()
    sender.message(prompt_tokens=tokens)
    settle(collector, sender)
    assert values(collector)[f'responses_total{{code="2xx",engine="llama",up_to="{up_to}"}}'] == 1
    buckets = prompts(collector).buckets
    assert next(bound for bound, count in buckets if count) == bucket
    assert buckets[-1] == ("+Inf", 1)
    assert prompts(collector).sum == tokens


def test_the_histogram_has_the_ends_of_the_classes_too(bench: Bench) -> None:
    collector, sender = bench.receiving(slo=Slo(classes=(LengthClass(up_to=1000), LengthClass())))
    sender.message(prompt_tokens=1000)
    settle(collector, sender)
    assert values(collector)['responses_total{code="2xx",engine="llama",up_to="1000"}'] == 1
    bounds = [bound for bound, _ in prompts(collector).buckets]
    assert bounds[:3] == ["512.0", "1000.0", "2048.0"]
    assert len(bounds) == 10


def test_a_failed_request_of_unknown_length_is_in_no_class_and_not_in_the_histogram(bench: Bench) -> None:
    collector, sender = bench.receiving()
    sender.message(prompt_tokens=..., status=500, output_tokens=0, trace_id=...)
    sender.message(prompt_tokens=None, status=429, cached_tokens=3)
    settle(collector, sender)
    assert values(collector) == {
        'messages_total{outcome="accepted"}': 2,
        'responses_total{code="5xx",engine="llama",up_to="unknown"}': 1,
        'responses_total{code="4xx",engine="llama",up_to="unknown"}': 1,
        'empty_responses_total{engine="llama",up_to="unknown"}': 1,
        'untraced_responses_total{engine="llama",up_to="unknown"}': 1,
        'cached_tokens_total{engine="llama"}': 3,
    }
    assert prompts(collector).buckets[-1] == ("+Inf", 0)


def test_each_bucket_has_its_newest_trace(bench: Bench) -> None:
    clock = FakeClock()
    collector, sender = bench.receiving(clock=clock)
    for number, tokens in enumerate((100, 500, 3000, 300_000), 1):
        clock.advance(1)
        sender.message(prompt_tokens=tokens, trace_id=trace(number))
        settle(collector, sender)
    sender.message(prompt_tokens=400, trace_id=...)
    settle(collector, sender)
    before = prompts(collector)
    start = clock.wall - 4
    assert before.exemplars == {
        "512.0": exemplar(2, 500, start + 2),
        "8192.0": exemplar(3, 3000, start + 3),
        "+Inf": exemplar(4, 300_000, start + 4),
    }
    sender.message(prompt_tokens=7, trace_id=TRACE)
    settle(collector, sender)
    assert prompts(collector).exemplars["512.0"].labels == {"trace_id": TRACE}
    assert before.exemplars["512.0"].value == 500


def test_counters_tell_when_they_began(bench: Bench) -> None:
    clock = FakeClock()
    collector, sender = bench.receiving(clock=clock)
    began = clock.wall
    clock.advance(30)
    sender.message()
    settle(collector, sender)
    clock.advance(30)
    sender.message()
    settle(collector, sender)
    created = {name(one).startswith(("messages_", "malformed_")): one.created for one in collector.collect().samples}
    assert created == {True: began, False: began + 30}


def test_engines_beyond_the_most_are_counted_and_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    collector, sender = bench.receiving(clock=clock, engines=2)
    for engine in ("a", "b", "c", "d", "a"):
        sender.message(engine=engine)
        settle(collector, sender)
        clock.advance(1)
    assert settle(collector, sender) == {"accepted": 3, "too_many_engines": 2}
    assert [record.getMessage() for record in caplog.records] == ["messages of further engines are not counted"]
    # b has been silent for longer than a, and now for long enough.
    clock.advance(IDLE - 3)
    sender.message(engine="c")
    settle(collector, sender)
    assert {dict(one.series.labels).get("engine") for one in collector.collect().samples} == {None, "a", "c"}
    sender.message(engine="b")
    assert settle(collector, sender) == {"accepted": 4, "too_many_engines": 3}


def test_of_a_message_about_one_engine_too_many_only_the_lost_ones_count(bench: Bench) -> None:
    collector, sender = bench.receiving(engines=1)
    sender.message(engine="a")
    settle(collector, sender)
    before = values(collector)
    sender.message(engine="b", trace_id="none", lost=3, output_tokens=5)
    settle(collector, sender)
    counted = {'messages_total{outcome="too_many_engines"}': 1, "messages_lost_total": 3}
    assert values(collector) == {**before, **counted}


def test_labels_may_hold_anything_that_prints(bench: Bench) -> None:
    collector, sender = bench.receiving()
    sender.message(engine='a"b\\c')
    settle(collector, sender)
    assert values(collector)['responses_total{code="2xx",engine="a\\"b\\\\c",up_to="2048"}'] == 1


OBJECTIVES = Slo(classes=(LengthClass(up_to=2048, ttft=1, e2e=10), LengthClass(e2e=60)))


@pytest.mark.parametrize(
    ("keys", "missed"),
    [
        ({"ttft_seconds": 0.5, "e2e_seconds": 11}, {"ttft": 0, "e2e": 1}),
        ({"ttft_seconds": 1.5, "e2e_seconds": 9}, {"ttft": 1, "e2e": 0}),
        ({"e2e_seconds": 9}, {"e2e": 0}),
        ({"status": 500}, {"ttft": 1, "e2e": 1}),
        ({"ttft_seconds": 0.5, "e2e_seconds": 1, "empty": True}, {"ttft": 1, "e2e": 1}),
        ({"status": 400, "e2e_seconds": 11}, {}),
        ({"status": 503, "prompt_tokens": ...}, {}),
    ],
)
def test_objectives(bench: Bench, keys: dict[str, Any], missed: dict[str, int]) -> None:
    collector, sender = bench.receiving(slo=OBJECTIVES)
    sender.message(**keys)
    settle(collector, sender)
    found = values(collector, zeros=True)

    def of(what: str) -> dict[str, float]:
        labels = 'engine="llama",objective="{}",source="requests",up_to="2048"'
        every = {one: found[f"oomcast_slo_{what}_total{{{labels.format(one)}}}"] for one in ("ttft", "e2e")}
        return every

    assert of("requests") == {"ttft": int("ttft" in missed), "e2e": int("e2e" in missed)}
    assert of("violations") == {"ttft": missed.get("ttft", 0), "e2e": missed.get("e2e", 0)}


def test_the_window_of_objectives_is_the_settings(bench: Bench) -> None:
    clock = FakeClock()
    collector, sender = bench.receiving(clock=clock, slo=OBJECTIVES, window=60)
    ratio = 'oomcast_slo_violation_ratio{engine="llama",objective="e2e",source="requests"}'
    sender.message(e2e_seconds=11)
    settle(collector, sender)
    assert values(collector)[ratio] == 1
    clock.advance(200)
    assert ratio not in values(collector, zeros=True)


def test_many_messages_are_all_counted(bench: Bench) -> None:
    collector, sender = bench.receiving(rate=1_000_000)
    for number in range(5000):
        sender.message(engine=f"engine {number % 7}", prompt_tokens=number)
    assert settle(collector, sender) == {"accepted": 5000}
    totals = [prompts(collector, f"engine {number}") for number in range(7)]
    assert sum(one.buckets[-1][1] for one in totals) == 5000
    assert sum(one.sum for one in totals) == 5000 * 4999 / 2
