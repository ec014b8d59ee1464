"""What the JSON pages of engines add, whatever they hold."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.engine.kind_pages import reading, text
from oomcast_collectors.engine.kinds import KINDS
from oomcast_collectors.engine.kinds.rows import Extra
from oomcast_collectors.engine.reading import Kind, Pool, Reading

EXTRAS = [(kind, extra) for kind, table in KINDS.items() for extra in table.extras]
PATHS = ["/v1/models", "/version", "/info", "/props", "/slots", "/get_model_info", "/get_server_info"]

KEYS = st.sampled_from(
    [
        *("data", "id", "max_model_len", "version", "model_id", "max_total_tokens", "model_path", "model_alias"),
        *("default_generation_settings", "n_ctx", "total_slots", "build_info", "is_processing", "n_prompt_tokens"),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300)
ANSWERS = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6))


def extra(kind: Kind, path: str) -> Extra:
    (found,) = [extra for extra in KINDS[kind].extras if extra.path == path]
    return found


def apply(kind: Kind, path: str, answer: Any, before: Reading | None = None) -> Reading:
    return extra(kind, path).apply(answer, before or Reading(kind))


def test_paths() -> None:
    assert {extra.path for _, extra in EXTRAS} == set(PATHS)
    assert [extra.path for _, extra in EXTRAS if extra.live] == ["/slots"]


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trtllm", "lmdeploy", "dynamo"])
def test_models(kind: Kind) -> None:
    base = {"id": "llama", "object": "model", "max_model_len": 131072, "parent": None}
    adapter = {"id": "adapter", "object": "model", "max_model_len": None, "parent": "llama"}
    found = apply(kind, "/v1/models", {"object": "list", "data": [base, adapter]})
    assert (found.model, found.max_model_len) == ("llama", 131072)


def test_what_the_page_says_holds() -> None:
    before = Reading("sglang", model="page", max_model_len=7)
    assert apply("sglang", "/v1/models", {"data": [{"id": "x", "max_model_len": 8}]}, before) == before
    assert apply("sglang", "/get_model_info", {"model_path": "/m"}, before) == before


def test_versions() -> None:
    assert apply("vllm", "/version", {"version": "0.32.0"}).version == "0.32.0"
    assert apply("trtllm", "/version", {"version": "1.3"}).version == "1.3"
    assert apply("sglang", "/get_server_info", {"version": "0.5.23", "tp_size": 8}).version == "0.5.23"
    assert apply("sglang", "/get_model_info", {"model_path": "/m"}).model == "/m"


@pytest.mark.parametrize("version", ["0.8.5", "0.8.5.post1", "v0.8.0", "0.7.3"])
def test_queries_of_old_releases_are_blocks(version: str) -> None:
    found = apply("vllm", "/version", {"version": version}, reading(text("written/vllm-0.8.5-v1")))
    assert (found.counts["queries"], found.counts["hits"]) == ({"": 3200}, {"": 800})
    assert (found.cache_unit, found.count("preemptions")) == ("blocks", 23)


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "0.11.2rc1", "1.0.0"])
def test_queries_of_later_releases_are_tokens(version: str) -> None:
    found = apply("vllm", "/version", {"version": version}, reading(text("written/vllm-0.8.5-v1")))
    assert (found.counts["queries"], found.counts["hits"], found.cache_unit) == ({"": 200}, {"": 50}, "tokens")


@pytest.mark.parametrize("answer", [{"version": "main"}, {"version": None}, None, {}])
def test_without_a_version_the_unit_stays_open(answer: object) -> None:
    before = reading(text("written/vllm-0.8.5-v1"))
    found = apply("vllm", "/version", answer, before)
    assert (found.counts, found.cache_unit) == (before.counts, "")


def test_blocks_of_unknown_size_are_no_tokens() -> None:
    before = reading(text("written/vllm-0.8.5-v1"))
    pools = (before.pools[0]._replace(block=None),)
    found = apply("vllm", "/version", {"version": "0.8.5"}, replace(before, pools=pools))
    assert (found.counts, found.cache_unit) == ({"preemptions": {"": 23}}, "")


@pytest.mark.parametrize("version", ["0.8.5", "0.32.0"])
def test_tokens_stay_tokens_whatever_the_version(version: str) -> None:
    before = reading(text("written/vllm-0.9.2"))
    assert apply("vllm", "/version", {"version": version}, before) == replace(before, version=version)


def test_info_of_tgi() -> None:
    answer = {"model_id": "mistral", "version": "3.3.7", "max_input_tokens": 4095, "max_total_tokens": 4096}
    found = apply("tgi", "/info", answer)
    assert (found.model, found.version, found.max_model_len) == ("mistral", "3.3.7", 4096)


def test_props_of_llamacpp() -> None:
    answer = {
        "default_generation_settings": {"id": 0, "n_ctx": 4096},
        "total_slots": 2,
        "model_path": "/m.gguf",
        "build_info": "b11434-abc",
    }
    found = apply("llamacpp", "/props", answer)
    assert (found.model, found.version, found.max_model_len) == ("/m.gguf", "b11434-abc", 4096)
    assert found.pools == (Pool("0", capacity=4096, exact=False), Pool("1", capacity=4096, exact=False))
    named = apply("llamacpp", "/props", {**answer, "model_alias": "tiny", "total_slots": 1})
    assert (named.model, named.pools) == ("tiny", (Pool("", capacity=4096, exact=False),))


@pytest.mark.parametrize("size", [True, 0, -1, 4096.0, "4096", None, 1 << 41])
def test_a_size_that_is_none_changes_nothing(size: object) -> None:
    before = Reading("llamacpp", max_model_len=7)
    assert (
        apply("llamacpp", "/props", {"default_generation_settings": {"n_ctx": size}, "total_slots": 4}, before)
        == before
    )
    assert apply("vllm", "/v1/models", {"data": [{"max_model_len": size}]}) == Reading("vllm")


def test_slots_of_llamacpp() -> None:
    answer = [
        {"id": 0, "n_ctx": 1000, "is_processing": False, "n_prompt_tokens": 900},  # only cached
        {"id": 1, "n_ctx": 1000, "is_processing": True, "n_prompt_tokens": 250},
        {"id": 2, "n_ctx": 1000, "is_processing": True},  # of a release that does not tell
        {"id": 3, "n_ctx": 1000, "is_processing": True, "n_prompt_tokens": 1001},
        {"id": 4, "is_processing": True, "n_prompt_tokens": 5},
        {"id": 5, "n_ctx": 1000, "is_processing": True, "n_prompt_tokens": 0},
        "no slot",
    ]
    found = apply("llamacpp", "/slots", answer, Reading("llamacpp", max_model_len=7))
    assert found.max_model_len == 1000
    assert found.pools == (
        Pool("0", 0.0, 1000, 1000, False),
        Pool("1", 0.25, 1000, 750, False),
        Pool("2", None, 1000, None, False),
        Pool("3", 1.0, 1000, 0, False),
        Pool("4", None, None, None, False),
        Pool("5", 0.0, 1000, 1000, False),
    )


@pytest.mark.parametrize("answer", [[], [{}] * 2000, {"error": {"code": 501}}, [1, "a"]])
def test_no_slots(answer: object) -> None:
    before = Reading("llamacpp", max_model_len=4096, pools=(Pool("", None, 4096),))
    assert apply("llamacpp", "/slots", answer, before) == before


@pytest.mark.parametrize(("kind", "path"), [(kind, extra.path) for kind, extra in EXTRAS])
@given(answer=ANSWERS)
@settings(max_examples=40, deadline=None)
def test_any_json(kind: Kind, path: str, answer: object) -> None:
    found = apply(kind, path, answer)
    assert found.kind == kind
    assert len(found.model) <= 256
    assert len(found.version) <= 256
    assert found.max_model_len is None or 0 < found.max_model_len <= 1 << 40
    for pool in found.pools:
        assert pool.usage is None or 0 <= pool.usage <= 1
        assert pool.available is None or pool.available >= 0
