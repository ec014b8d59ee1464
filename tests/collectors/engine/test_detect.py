"""What kind of engine a page is of, and where pages are."""

import pytest

from collectors.engine.kind_pages import CAPTURES, WRITTEN, lines, text
from oomcast_collectors.engine.detect import Place, kind_of, kinds_of, places
from oomcast_collectors.engine.kinds import KINDS


@pytest.mark.parametrize("name", CAPTURES + WRITTEN)
def test_the_names_that_are_read_are_enough(name: str) -> None:
    found = kind_of({line.name for line in lines(text(name))})
    assert found == name.removeprefix("written/").partition("-")[0].partition(".")[0]


def test_every_kind_has_a_page() -> None:
    assert {kind_of({line.name for line in lines(text(name))}) for name in CAPTURES + WRITTEN} == KINDS.keys()


def test_what_is_beside_the_engine_comes_after_it() -> None:
    cache, engine = "lmcache:num_lookup_hits_total", "vllm:num_preemptions_total"
    assert kinds_of([cache, engine]) == ("vllm", "lmcache")
    worker = "dynamo_component_inflight_requests"
    assert kinds_of([worker, engine, cache]) == ("vllm", "dynamo", "lmcache")
    assert kinds_of([worker, "sglang:num_running_reqs"]) == ("sglang", "dynamo")
    assert kinds_of([worker, "trtllm_num_requests_running"]) == ("trtllm", "dynamo")
    assert kinds_of([worker]) == ("dynamo",)
    # vLLM as a backend of Triton.
    assert kinds_of(["nv_inference_request_success", "vllm:generation_tokens_total"]) == ("vllm", "triton")


@pytest.mark.parametrize(
    "names",
    [
        set(),
        {"process_start_time_seconds", "http_requests_total"},
        # A router in front of vLLM tells of its servers under the same prefix.
        {"vllm:num_requests_running", "vllm:gpu_prefix_cache_hits_total", "vllm:healthy_pods_total"},
        {"envoy_server_live", "dynamo_x"},
        {"VLLM:num_preemptions_total", "my_sglang:num_running_reqs"},
    ],
)
def test_no_engine(names: set[str]) -> None:
    assert kind_of(names) is None


def test_paths_in_the_order_to_try() -> None:
    assert [place.url for place in places("http://127.0.0.1:8100/")] == [
        "http://127.0.0.1:8100/metrics",
        "http://127.0.0.1:8100/prometheus/metrics",
        "http://127.0.0.1:8100/stats/prometheus",
    ]


def test_json_is_no_page() -> None:
    assert lines('[{"gpuMemUsage": 76665782272, "kvCacheStats": {"maxNumBlocks": 101256}}]\n') == []


@pytest.mark.parametrize("url", ["http://h:1/metrics", "https://h/x/metrics?model=a", "http://h:8000/m"])
def test_a_page_that_is_named_is_the_only_one(url: str) -> None:
    assert places(url) == (Place(url),)


@pytest.mark.parametrize(
    ("url", "guess"),
    [
        ("http://h:8000", Place("http://h:8002/metrics", "triton")),
        ("http://[::1]:8000", Place("http://[::1]:8002/metrics", "triton")),
        ("https://user:word@h:3000", Place("https://h:9000/metrics", "tgi")),  # pragma: allowlist secret
        ("http://h", Place("http://h:9000/metrics", "tgi")),
        ("http://[::1]", Place("http://[::1]:9000/metrics", "tgi")),
    ],
)
def test_metrics_on_another_port_come_last_and_for_their_kind_alone(url: str, guess: Place) -> None:
    *own, last = places(url)
    assert last == guess
    assert len(own) == 3
    assert all(place.only is None for place in own)


def test_other_ports_are_not_guessed() -> None:
    assert all(place.only is None for place in places("http://h:8080"))


def test_a_port_that_is_none() -> None:
    with pytest.raises(ValueError, match="ort"):
        places("http://h:port")
