"""`oomcast context` over what a running daemon tells."""

from collections.abc import Iterator

import pytest

from daemon.context_harness import NOWHERE, SGLANG, VLLM, Site, ask, engine, sites
from daemon.kv.samples import CONFIGS

LLAMA = str(CONFIGS / "llama-3-8b.json")
DAEMON = """\
oomcast_gpu_memory_free_min_bytes{gpu="GPU-1"} 3e+09
oomcast_gpu_memory_free_min_bytes{gpu="GPU-0"} 2e+09
oomcast_engine_up{engine="a"} 1.0
oomcast_engine_info{engine="a",kind="vllm",version="0.32.0",model="tiny",capacity="exact"} 1.0
oomcast_kv_cache_capacity_tokens{engine="a"} 8192.0
oomcast_kv_cache_largest_request_tokens{engine="a"} 1024.0
oomcast_kv_cache_max_model_len_fits{engine="a"} 1.0
oomcast_engine_max_model_len_tokens{engine="a"} 4096.0
oomcast_kv_cache_bytes_per_token{engine="a"} 1024.0
oomcast_engine_requests_waiting{engine="a",reason="capacity"} 2.0
oomcast_engine_requests_waiting{engine="a",reason="deferred"} 1.0
oomcast_engine_up{engine="small"} 1.0
oomcast_kv_cache_capacity_tokens{engine="small"} 3000.0
oomcast_kv_cache_largest_request_tokens{engine="small"} 2000.0
oomcast_kv_cache_max_model_len_fits{engine="small"} 0.0
oomcast_engine_max_model_len_tokens{engine="small"} 4096.0
oomcast_engine_up{engine="free"} 1.0
oomcast_kv_cache_capacity_tokens{engine="free"} 8192.0
oomcast_kv_cache_largest_request_tokens{engine="free"} 4096.0
oomcast_kv_cache_max_model_len_fits{engine="free"} 1.0
oomcast_engine_max_model_len_tokens{engine="free"} 4096.0
oomcast_engine_up{engine="down"} 0.0
oomcast_engine_up{engine="mute"} 1.0
"""


@pytest.fixture
def site() -> Iterator[Site]:
    with sites() as start:
        yield start


@pytest.mark.parametrize(
    ("name", "tokens", "code", "expected"),
    [
        ("a", 1023, 0, [("kv_pool_now", 1025), ("max_model_len", 4097), ("kv_pool_empty", None)]),
        ("a", 1024, 1, [("kv_pool_now", 1025), ("max_model_len", 4097), ("kv_pool_empty", None)]),
        ("a", 4096, 4, [("kv_pool_now", 1025), ("max_model_len", 4097), ("kv_pool_empty", None)]),
        ("small", 2999, 1, [("kv_pool_now", 2001), ("kv_pool_empty", 3001), ("max_model_len", 4097)]),
        ("small", 3000, 4, [("kv_pool_now", 2001), ("kv_pool_empty", 3001), ("max_model_len", 4097)]),
        ("free", 4095, 0, [("max_model_len", 4097), ("kv_pool_empty", None), ("kv_pool_now", None)]),
    ],
)
def test_what_a_daemon_tells(
    site: Site, name: str, tokens: int, code: int, expected: list[tuple[str, int | None]]
) -> None:
    url = site({"/metrics": DAEMON})
    done = ask("--daemon", url, "--name", name, "--tokens", str(tokens), "--format", "json")
    assert (done.code, done.limits) == (code, expected)
    assert done.json["target"] == f"{url}, engine {name}"
    assert ask("--daemon", f"{url}/metrics", "--name", name, "--tokens", str(tokens)).code == code


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("down", 3, "it does not answer the daemon"),
        ("mute", 3, "tells nothing of its KV memory"),
        ("other", 2, "--name: should be an engine that the daemon watches, such as a, down, free, mute, small"),
        ("", 2, "--name: should be"),
    ],
)
def test_engines_that_a_daemon_tells_nothing_of(site: Site, name: str, code: int, message: str) -> None:
    done = ask("--daemon", site({"/metrics": DAEMON}), "--name", name, "--tokens", "1")
    assert (done.code, done.out) == (code, "")
    assert message in done.err


def test_the_only_engine_needs_no_name(site: Site) -> None:
    page = "".join(line for line in DAEMON.splitlines(keepends=True) if 'engine="a"' in line)
    done = ask("--daemon", site({"/metrics": page}), "--tokens", "10", "--format", "json")
    assert (done.code, done.json["about"], done.json["cases"][0]["kv_bytes"]) == (0, "vllm 0.32.0 tiny", 11 * 1024)
    assert "3 requests wait already: another one comes after them" in done.json["notes"]
    done = ask("--daemon", site({"/metrics": "oomcast_build_info 1\n"}), "--tokens", "10")
    assert (done.code, "the daemon watches no engine" in done.err) == (3, True)


def test_headroom_that_the_daemon_saw(site: Site) -> None:
    given = ("--engine", site(engine(SGLANG)), "--tokens", "101", "--activation-bytes-per-token", "20MB")
    done = ask(*given, "--daemon", site({"/metrics": DAEMON}), "--format", "json")
    assert done.limits[0] == ("framebuffer", 101)
    (case,) = done.json["cases"]
    assert (done.code, case["fits_now"], case["fits_empty"], case["breaks_first"]) == (1, False, None, "framebuffer")
    assert ask(*given, "--daemon", site({"/metrics": DAEMON}), "--prefill-chunk", "100").code == 0
    done = ask(*given, "--daemon", NOWHERE, "--format", "json")
    assert (done.code, done.json["unknown"]) == (0, ["framebuffer"])
    assert "cannot connect" in done.json["notes"][-1]
    done = ask(*given, "--daemon", site({"/metrics": "oomcast_build_info 1\n"}), "--format", "json")
    assert "tells of no GPU" in done.json["notes"][-1]
    assert ask(*given, "--headroom", "2GB").code == 4


def test_json_has_the_same_keys_whatever_is_asked(site: Site) -> None:
    page = site({"/metrics": DAEMON})
    asked = [
        ask("--engine", site(engine(VLLM)), "--tokens", "500", "--format", "json"),
        ask("--daemon", page, "--name", "a", "--tokens", "5", "--format", "json"),
        ask("--config", LLAMA, "--pool", "1GiB", "--input-file", LLAMA, "--format", "json"),
    ]
    for done in asked:
        assert list(done.json) == [
            *("input", "output_tokens", "source", "target", "about", "bytes_per_token", "block_tokens"),
            *("cases", "limits", "unknown", "notes"),
        ]
        for case in done.json["cases"]:
            assert list(case) == [
                *("input_tokens", "tokens", "kv_bytes", "fits_now", "fits_empty", "breaks_first", "breaks"),
            ]
            assert all(list(row) == ["limit", "at", "in"] for row in case["breaks"])
        assert all(list(row) == ["limit", "tokens", "breaks_at", "counts", "holds"] for row in done.json["limits"])
