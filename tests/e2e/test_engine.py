"""The real daemon over the pages of real engines: all that it says of them, and how it follows what they do."""

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from conftest import Golden
from e2e.engines import PAGES, Node, endpoint, page, serving, settings, watching
from e2e.program import until
from requires import missing

VLLM, SGLANG, LLAMACPP = "vllm-cpu-0.32.0-prefix", "sglang-cpu-0.5.23-prefix", "llamacpp-b11434-pressure-during"
CAPTURES = sorted(path.stem for path in PAGES.glob("*.prom"))
OURS = re.compile(r"oomcast_(?:engine|kv_cache|prompt_tokens|corrupted_responses|gateway)_?")


def masked(text: str, name: str) -> str:
    """The lines about one engine, without what depends on the machine and the moment."""
    lines = [line for line in text.splitlines() if f'engine="{name}"' in line and OURS.match(line)]
    told = "".join(f"{line}\n" for line in lines).replace(f'engine="{name}"', 'engine="a"')
    told = re.sub(r'address="127\.0\.0\.1:\d+"', 'address="ADDRESS"', told)
    told = re.sub(r',cgroup="[^"]*"', "", told)
    return re.sub(r"^(oomcast_engine_scrape_duration_seconds\S+) \S+$", r"\1 MEASURED", told, flags=re.MULTILINE)


def told(node: Node, name: str) -> str:
    return masked(node.text(), name)


def test_the_whole_text_of_every_capture(tmp_path: Path, golden: Golden) -> None:
    with serving(*CAPTURES) as engines:
        for engine, name in zip(engines, CAPTURES, strict=True):
            if name == "llamacpp-b11434-pressure-during":
                engine.pages["/slots"] = (PAGES / "llamacpp-b11434-slots-during.json").read_bytes()
            elif name == "vllm-cpu-0.32.0-idle":
                engine.pages["/v1/models"] = b'{"data": [{"id": "tiny", "max_model_len": 1048576}]}'
                engine.pages["/version"] = b'{"version": "0.32.0"}'
        named = [endpoint(engine, name) for engine, name in zip(engines, CAPTURES, strict=True)]
        with watching(tmp_path, *named, period=1) as node:
            until(lambda: all(map(node.up, CAPTURES)))
            for name in CAPTURES:
                golden.becomes(f"engine/{name}.prom", partial(told, node, name))
            text = node.text()
    if missing("prometheus") is None:
        check = ("promtool", "check", "metrics")
        checked = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_a_restart_counts_and_counters_never_fall(tmp_path: Path) -> None:
    with serving(VLLM) as (engine,), watching(tmp_path, endpoint(engine, "a")) as node:
        until(lambda: node.up("a"))
        before = node.value("kv_cache_queries_total", "a")
        assert before
        assert node.value("engine_restarts_total", "a") == 0
        engine.stop()
        until(lambda: node.value("engine_up", "a") == 0)
        assert node.value("engine_scrape_errors_total", "a", reason="refused")
        assert node.state("a") == "unreachable"
        assert node.value("kv_cache_usage_ratio", "a") is None
        assert node.value("kv_cache_queries_total", "a") == before
        assert 'oomcast_engine_info{address="' not in node.text()

        engine.pages["/metrics"] = page("vllm-cpu-0.32.0-idle")
        engine.says(prefix_cache_queries_total=10.0)
        engine.start()
        until(lambda: node.up("a"))
        assert node.value("engine_restarts_total", "a") == 1
        assert node.value("kv_cache_queries_total", "a") == before + 10
        assert node.state("a") == "restarted"
        until(lambda: (node.daemon.value("oomcast_events_total", 'kind="engine_state"') or 0) >= 2)
        assert node.daemon.log.count('msg="engine a: vllm at') == 2
        assert node.daemon.log.count("cannot connect") == 1


def test_another_kind_of_engine_in_the_same_place(tmp_path: Path) -> None:
    with serving(VLLM) as (engine,), watching(tmp_path, endpoint(engine, "a")) as node:
        until(lambda: node.up("a"))
        before = node.value("kv_cache_queries_total", "a") or 0
        engine.starts_anew(SGLANG)
        until(lambda: 'kind="sglang"' in node.text())
        assert 'kind="vllm"' not in node.text()
        assert (node.value("kv_cache_queries_total", "a") or 0) > before
        assert node.value("engine_restarts_total", "a") == 1
        assert node.value("kv_cache_capacity_tokens", "a") == 8192


def test_several_kinds_at_once(tmp_path: Path) -> None:
    written = {"old": "vllm-0.8.5-v1", "tgi": "tgi-3.3.7", "trt": "trtllm-1.3", "both": "vllm-lmcache"}
    with serving(VLLM, SGLANG, LLAMACPP, *(f"written/{name}" for name in written.values())) as engines:
        names = ["vllm", "sglang", "llamacpp", *written]
        with watching(tmp_path, *map(endpoint, engines, names)) as node:
            until(lambda: all(map(node.up, names)))
            kinds = dict(re.findall(r'engine="(\w+)",kind="(\w+)"', node.text()))
    assert kinds == {
        "vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "old": "vllm", "tgi": "tgi", "trt": "trtllm",
        "both": "vllm",
    }  # fmt: skip


def test_two_endpoints_with_one_name_are_told_apart(tmp_path: Path) -> None:
    with serving(VLLM, SGLANG) as (one, other), watching(tmp_path, endpoint(one, "a"), endpoint(other, "a")) as node:
        second = f"a@127.0.0.1:{other.port}"
        until(lambda: node.up("a") and node.up(second))
        assert node.value("kv_cache_capacity_tokens", second) == 8192
        assert node.value("kv_cache_capacity_tokens", "a") != 8192


def test_bytes_and_the_longest_request_from_the_settings_and_other_pages(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,'
        ' "hidden_size": 4096, "torch_dtype": "bfloat16", "vocab_size": 1}'
    )
    with serving("written/vllm-0.31.0") as (engine,):
        engine.pages["/v1/models"] = b'{"data": [{"id": "m", "max_model_len": 900000000}]}'
        given = endpoint(engine, "a", model_config_file=config, tensor_parallel=2)
        with watching(tmp_path, given) as node:
            until(lambda: node.up("a"))
            assert node.value("kv_cache_bytes_per_token", "a") == 2 * 32 * 8 * 128 * 2 / 2
            assert node.value("engine_max_model_len_tokens", "a") == 900_000_000
            assert node.value("kv_cache_max_model_len_fits", "a") == 0


def test_time_to_exhaustion_while_the_pool_fills(tmp_path: Path) -> None:
    with serving(VLLM) as (engine,), watching(tmp_path, endpoint(engine, "a")) as node:
        until(lambda: node.up("a"))

        def foreseen() -> bool:
            engine.says(kv_cache_usage_perc=min(usage.pop(), 0.9))
            node.looks(engine, 1)
            left = node.value("time_to_exhaustion_seconds", "a", resource="kv_cache")
            return left is not None and left < 120

        usage = [0.03 * step for step in range(200, 0, -1)]
        until(foreseen, 60)
        assert node.value("kv_cache_headroom_tokens", "a")


def test_a_reload_takes_other_endpoints(tmp_path: Path) -> None:
    with serving(VLLM, SGLANG) as (one, other), watching(tmp_path, endpoint(one, "a")) as node:
        until(lambda: node.up("a"))
        listen = 'http: {listen: "127.0.0.1:{port}"}\n'
        node.daemon.settings(listen + settings(endpoint(other, "b")))
        node.daemon.reload()
        until(lambda: node.up("b"))
        assert 'engine="a"' not in node.text()
        asked = one.requests.total()
        node.looks(other)
        assert one.requests.total() == asked


@pytest.mark.parametrize("hangs", [True, False])
def test_the_daemon_ends_in_time(tmp_path: Path, hangs: bool) -> None:
    with serving(VLLM) as (engine,), watching(tmp_path, endpoint(engine, "a")) as node:
        until(lambda: node.up("a"))
        asked = engine.requests["/metrics"]
        engine.hang(hangs)
        until(lambda: engine.requests["/metrics"] > asked)
        code, seconds = node.daemon.end()
        assert code == 0
        assert seconds < 2
        assert "level=error" not in node.daemon.log
