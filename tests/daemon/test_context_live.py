"""`oomcast context` over the pages of engines, from a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.context_harness import ENGINES, SGLANG, VLLM, Pages, Site, ask, engine, sites
from e2e.stack import free_port
from web_servers import servers, silent


@pytest.fixture
def site() -> Iterator[Site]:
    with sites() as start:
        yield start


def models(longest: int) -> str:
    return json.dumps({"data": [{"id": "tiny", "max_model_len": longest}]})


# What the pages hold: vLLM 33 blocks of 128 tokens, of which 1 is never given out and 31 are in use; SGLang 4096 tokens
# of which 179 are available or evictable, 1 KiB each; llama.cpp 4 slots of 4096, the emptiest with 1500.
@pytest.mark.parametrize(
    ("pages", "arguments", "code", "first"),
    [
        (engine(VLLM, v1_models=models(2048)), ("--tokens", "127"), 0, None),
        (engine(VLLM, v1_models=models(2048)), ("--tokens", "128"), 1, ("kv_pool_now", 129)),
        (engine(VLLM, v1_models=models(100)), ("--tokens", "100"), 4, ("max_model_len", 101)),
        (engine(VLLM, v1_models=models(8192)), ("--tokens", "4095"), 1, ("kv_pool_now", 129)),
        (engine(VLLM, v1_models=models(8192)), ("--tokens", "4096"), 4, ("kv_pool_now", 129)),
        (engine(VLLM), ("--tokens", "99", "--output-tokens", "2", "--max-model-len", "100"), 4, ("max_model_len", 101)),
        (engine(VLLM), ("--tokens", "99"), 0, None),
        (engine(SGLANG), ("--tokens", "100", "--output-tokens", "79"), 0, None),
        (engine(SGLANG), ("--tokens", "100", "--output-tokens", "80"), 1, ("kv_pool_now", 180)),
        (engine("sglang-cpu-0.5.23-idle.prom"), ("--tokens", "8192"), 4, ("kv_pool_empty", 8193)),
    ],
)
def test_a_live_engine(
    site: Site, pages: Pages, arguments: tuple[str, ...], code: int, first: tuple[str, int] | None
) -> None:
    done = ask("--engine", site(pages), *arguments, "--format", "json")
    assert (done.code, done.err) == (code, "")
    (case,) = done.json["cases"]
    broken = case["breaks"][0] if case["breaks"] else None
    assert (broken and (broken["limit"], broken["at"])) == first
    assert case["breaks_first"] == (first and first[0])
    assert (case["fits_now"], case["fits_empty"]) == (code == 0, code != 4)


def test_text_of_an_engine(site: Site) -> None:
    url = site(engine(SGLANG))
    done = ask("--engine", url, "--tokens", "3000", "--output-tokens", "2000")
    assert (
        done.out
        == f"""\
input         3,000 tokens, and 2,000 of answer
engine        {url}: sglang tiny
KV memory     5,120,000 B (4.88 MiB) on each GPU
fits now      no
fits empty    no
breaks first  KV pool, what is free of it now: at token 180, in the input

BREAKS AT TOKEN LIMIT
            180 KV pool, what is free of it now: 179 tokens
          4,097 KV pool, empty: 4,096 tokens
        131,073 longest request that is accepted: 131,072 tokens
      not known framebuffer, for prefill's own memory

note: 2 requests wait already: another one comes after them
note: prefill takes memory of its own beside the KV pool, which is not counted here: give it by \
--activation-bytes-per-token
"""
    )
    assert done.code == 4


def test_slots_of_llama_cpp_are_pools(site: Site) -> None:
    slots = (ENGINES / "llamacpp-b11434-slots-during.json").read_text()
    done = ask(
        "--engine",
        site(engine("llamacpp-b11434-pressure-during.prom", slots=slots)),
        "--tokens",
        "3000",
        "--format",
        "json",
    )
    assert done.limits == [("kv_pool_now", 2597), ("max_model_len", 4097), ("kv_pool_empty", 4097)]
    assert any("4 pools" in note for note in done.json["notes"])
    assert done.code == 1


def test_ranks(site: Site) -> None:
    """Each rank has 99 blocks of 16 tokens to give; a quarter is in use on the first, three quarters on the other."""
    done = ask("--engine", site(engine("written/vllm-0.32.0-dp2.prom")), "--tokens", "1184", "--format", "json")
    assert done.limits == [("kv_pool_now", 1185), ("kv_pool_empty", 1585)]
    assert done.json["block_tokens"] == 16


def test_the_longest_request_is_asked_for_with_the_token(site: Site, tmp_path: Path) -> None:
    url = site(engine(VLLM, v1_models=models(64)) | {"secret": "s3cr3t"})
    assert "/v1/models: HTTP 401" in ask("--engine", url, "--tokens", "64").out
    (tmp_path / "token").write_text("s3cr3t\n")
    done = ask("--engine", url, "--tokens", "64", "--bearer-token-file", str(tmp_path / "token"), "--format", "json")
    assert done.limits[0] == ("max_model_len", 65)


def test_bare_metrics_of_an_engine(site: Site) -> None:
    assert ask("--engine", site(engine(VLLM)) + "/metrics", "--tokens", "10").code == 0


@pytest.mark.parametrize(
    ("pages", "message"),
    [
        ({}, "no metrics of a known engine"),
        ({"/metrics": "up 1\n"}, "no metrics of a known engine"),
        ({"/metrics": b"\xff\0" * 5000}, "no metrics of a known engine"),
        (engine("written/envoy.prom"), "envoy tells nothing of its KV memory"),
    ],
)
def test_who_tells_nothing(site: Site, pages: Pages, message: str) -> None:
    done = ask("--engine", site(pages), "--tokens", "10")
    assert (done.code, done.out) == (3, "")
    assert message in done.err


def test_who_does_not_answer() -> None:
    done = ask("--engine", f"http://127.0.0.1:{free_port()}", "--tokens", "10")
    assert (done.code, "cannot connect" in done.err) == (3, True)
    with servers() as serve:
        server = serve(silent)
        done = ask("--engine", f"http://127.0.0.1:{server.port}", "--tokens", "10", "--timeout", "0.2")
        # A second page of a server that hangs is not asked for.
        assert (done.code, "no whole answer within 0.2 s" in done.err, server.connections) == (3, True, 1)
