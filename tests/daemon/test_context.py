"""`oomcast context`: over pages of engines and of the daemon from a real server, over configs, and as a program."""

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from daemon.kv.samples import CONFIGS
from e2e.program import oomcast
from e2e.stack import free_port
from oomcast.context.command import define
from web_servers import servers, silent

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
VLLM = "vllm-cpu-0.32.0-pressure-during.prom"
SGLANG = "sglang-cpu-0.5.23-retract-during.prom"
LLAMA = str(CONFIGS / "llama-3-8b.json")
NOWHERE = "http://127.0.0.1:1"

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

Pages = Mapping[str, bytes | str]
Site = Callable[[Pages], str]


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


Ask = Callable[..., Done]


@pytest.fixture
def ask(capsysbinary: pytest.CaptureFixture[bytes]) -> Ask:
    """Runs the command within this process."""

    def run(*arguments: str) -> Done:
        parser = argparse.ArgumentParser()
        define(parser)
        try:
            parsed = parser.parse_args(arguments)
            code = parsed.command(parsed)
        except SystemExit as done:
            code = done.code
        out, err = capsysbinary.readouterr()
        return Done(code, out.decode(), err.decode())

    return run


@pytest.fixture
def site() -> Iterator[Site]:
    """Starts a server of these pages, by path; gives its URL. "secret": the token that /v1/models wants."""
    started: list[ThreadingHTTPServer] = []

    def start(pages: Pages) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                secret = pages.get("secret")
                refused = (
                    self.path == "/v1/models" and secret and self.headers.get("authorization") != f"Bearer {secret!s}"
                )
                self.send_response(401 if refused else 404 if page is None else 200)
                self.end_headers()
                if page is not None and not refused:
                    self.wfile.write(page if isinstance(page, bytes) else page.encode())

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        started.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), name="test-site", daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def engine(name: str, **more: str) -> dict[str, bytes | str]:
    """The pages of an engine: its metrics are those of the fixture."""
    return {
        "/metrics": (ENGINES / name).read_bytes(),
        **{f"/{path.replace('_', '/')}": text for path, text in more.items()},
    }


def models(longest: int) -> str:
    return json.dumps({"data": [{"id": "tiny", "max_model_len": longest}]})


def limits(done: Done) -> list[tuple[str, int | None]]:
    return [(row["limit"], row["breaks_at"]) for row in done.json["limits"]]


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
    site: Site, ask: Ask, pages: Pages, arguments: tuple[str, ...], code: int, first: tuple[str, int] | None
) -> None:
    done = ask("--engine", site(pages), *arguments, "--format", "json")
    assert (done.code, done.err) == (code, "")
    (case,) = done.json["cases"]
    broken = case["breaks"][0] if case["breaks"] else None
    assert (broken and (broken["limit"], broken["at"])) == first
    assert case["breaks_first"] == (first and first[0])
    assert (case["fits_now"], case["fits_empty"]) == (code == 0, code != 4)


def test_text_of_an_engine(site: Site, ask: Ask) -> None:
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


def test_slots_of_llama_cpp_are_pools(site: Site, ask: Ask) -> None:
    slots = (ENGINES / "llamacpp-b11434-slots-during.json").read_text()
    done = ask(
        "--engine",
        site(engine("llamacpp-b11434-pressure-during.prom", slots=slots)),
        "--tokens",
        "3000",
        "--format",
        "json",
    )
    assert limits(done) == [("kv_pool_now", 2597), ("max_model_len", 4097), ("kv_pool_empty", 4097)]
    assert any("4 pools" in note for note in done.json["notes"])
    assert done.code == 1


def test_ranks(site: Site, ask: Ask) -> None:
    """Each rank has 99 blocks of 16 tokens to give; a quarter is in use on the first, three quarters on the other."""
    done = ask("--engine", site(engine("written/vllm-0.32.0-dp2.prom")), "--tokens", "1184", "--format", "json")
    assert limits(done) == [("kv_pool_now", 1185), ("kv_pool_empty", 1585)]
    assert done.json["block_tokens"] == 16


def test_the_longest_request_is_asked_for_with_the_token(site: Site, ask: Ask, tmp_path: Path) -> None:
    url = site(engine(VLLM, v1_models=models(64)) | {"secret": "s3cr3t"})
    assert "/v1/models: HTTP 401" in ask("--engine", url, "--tokens", "64").out
    (tmp_path / "token").write_text("s3cr3t\n")
    done = ask("--engine", url, "--tokens", "64", "--bearer-token-file", str(tmp_path / "token"), "--format", "json")
    assert limits(done)[0] == ("max_model_len", 65)


def test_bare_metrics_of_an_engine(site: Site, ask: Ask) -> None:
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
def test_who_tells_nothing(site: Site, ask: Ask, pages: Pages, message: str) -> None:
    done = ask("--engine", site(pages), "--tokens", "10")
    assert (done.code, done.out) == (3, "")
    assert message in done.err


def test_who_does_not_answer(ask: Ask) -> None:
    done = ask("--engine", f"http://127.0.0.1:{free_port()}", "--tokens", "10")
    assert (done.code, "cannot connect" in done.err) == (3, True)
    with servers() as serve:
        server = serve(silent)
        done = ask("--engine", f"http://127.0.0.1:{server.port}", "--tokens", "10", "--timeout", "0.2")
        # A second page of a server that hangs is not asked for.
        assert (done.code, "no whole answer within 0.2 s" in done.err, server.connections) == (3, True, 1)


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
    site: Site, ask: Ask, name: str, tokens: int, code: int, expected: list[tuple[str, int | None]]
) -> None:
    url = site({"/metrics": DAEMON})
    done = ask("--daemon", url, "--name", name, "--tokens", str(tokens), "--format", "json")
    assert (done.code, limits(done)) == (code, expected)
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
def test_engines_that_a_daemon_tells_nothing_of(site: Site, ask: Ask, name: str, code: int, message: str) -> None:
    done = ask("--daemon", site({"/metrics": DAEMON}), "--name", name, "--tokens", "1")
    assert (done.code, done.out) == (code, "")
    assert message in done.err


def test_the_only_engine_needs_no_name(site: Site, ask: Ask) -> None:
    page = "".join(line for line in DAEMON.splitlines(keepends=True) if 'engine="a"' in line)
    done = ask("--daemon", site({"/metrics": page}), "--tokens", "10", "--format", "json")
    assert (done.code, done.json["about"], done.json["cases"][0]["kv_bytes"]) == (0, "vllm 0.32.0 tiny", 11 * 1024)
    assert "3 requests wait already: another one comes after them" in done.json["notes"]
    done = ask("--daemon", site({"/metrics": "oomcast_build_info 1\n"}), "--tokens", "10")
    assert (done.code, "the daemon watches no engine" in done.err) == (3, True)


def test_headroom_that_the_daemon_saw(site: Site, ask: Ask) -> None:
    given = ("--engine", site(engine(SGLANG)), "--tokens", "101", "--activation-bytes-per-token", "20MB")
    done = ask(*given, "--daemon", site({"/metrics": DAEMON}), "--format", "json")
    assert limits(done)[0] == ("framebuffer", 101)
    (case,) = done.json["cases"]
    assert (done.code, case["fits_now"], case["fits_empty"], case["breaks_first"]) == (1, False, None, "framebuffer")
    assert ask(*given, "--daemon", site({"/metrics": DAEMON}), "--prefill-chunk", "100").code == 0
    done = ask(*given, "--daemon", NOWHERE, "--format", "json")
    assert (done.code, done.json["unknown"]) == (0, ["framebuffer"])
    assert "cannot connect" in done.json["notes"][-1]
    done = ask(*given, "--daemon", site({"/metrics": "oomcast_build_info 1\n"}), "--format", "json")
    assert "tells of no GPU" in done.json["notes"][-1]
    assert ask(*given, "--headroom", "2GB").code == 4


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("--pool", "1GiB", "--tokens", "8191"), 0, [("max_model_len", 8193), ("kv_pool_empty", 8193)]),
        (("--pool", "1GiB", "--tokens", "8192"), 4, [("max_model_len", 8193), ("kv_pool_empty", 8193)]),
        (("--pool", "1000MiB", "--tokens", "8000"), 4, [("kv_pool_empty", 8001), ("max_model_len", 8193)]),
        (
            ("--pool", "1001MiB", "--block-size", "16", "--tokens", "8000"),
            4,
            [("kv_pool_empty", 8001), ("max_model_len", 8193)],
        ),
        (("--pool", "1GiB", "--tp", "4", "--tokens", "9000"), 4, [("max_model_len", 8193), ("kv_pool_empty", 32769)]),
        (
            ("--pool", "1GiB", "--tp", "4", "--dtype", "fp8", "--max-model-len", "99999", "--tokens", "65535"),
            0,
            [("kv_pool_empty", 65537), ("max_model_len", 100000)],
        ),
        (
            ("--gpu-memory", "10GiB", "--weights", "8GiB", "--tokens", "9"),
            0,
            [("max_model_len", 8193), ("kv_pool_empty", 8193)],
        ),
        (
            ("--pool", "1GiB", "--tokens", "100", "--activation-bytes-per-token", "1MB", "--headroom", "99MB"),
            4,
            [("framebuffer", 100), ("max_model_len", 8193), ("kv_pool_empty", 8193)],
        ),
    ],
)
def test_a_config(ask: Ask, arguments: tuple[str, ...], code: int, expected: list[tuple[str, int]]) -> None:
    done = ask("--config", LLAMA, *arguments, "--format", "json")
    assert (done.code, limits(done)) == (code, expected)


def test_a_pool_in_which_nothing_grows(ask: Ask) -> None:
    given = ("--config", str(CONFIGS / "mistral-7b-v0.1.json"), "--pool", "1GiB", "--tokens", "9000")
    assert limits(ask(*given, "--format", "json")) == [("max_model_len", 32769), ("kv_pool_empty", None)]
    done = ask(*given, "--output-tokens", "23769")
    assert "breaks first  longest request that is accepted: at token 32,769, in the answer\n" in done.out
    assert "          never KV pool, empty\n" in done.out
    assert "fits          no\n" in done.out


def test_a_file_whose_tokens_are_not_counted(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "input.txt"
    path.write_text("a" * 16_000)
    given = ("--config", LLAMA, "--input-file", str(path), "--pool")
    done = ask(*given, "2GiB")
    assert done.code == 1
    assert "input         4,000 to 16,000 tokens (16,000 bytes), and 1 of answer\n" in done.out
    assert "fits          yes (if 4,000); no (if 16,000)\n" in done.out
    assert "note: tokens: not counted; 4 bytes each are usual in English, 1 is the worst there is" in done.out
    found = ask(*given, "2GiB", "--format", "json").json
    assert found["input"] == {"method": "size", "least": 4000, "most": 16_000, "bytes": 16_000}
    assert [case["fits_now"] for case in found["cases"]] == [True, False]
    path.write_text("a" * 8191)
    assert ask(*given, "2GiB").code == 0
    assert ask(*given, "100MiB").code == 4


def test_json_has_the_same_keys_whatever_is_asked(site: Site, ask: Ask) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of the arguments --tokens --input-file is required"),
        (("--tokens", "0"), "'0' should be a whole number from 1"),
        (("--tokens", "1e6"), "'1e6' should be a whole number from 1"),
        (("--tokens", "9" * 13), "of 12 digits at most"),
        (("--tokens", "1", "--input-file", "x"), "not allowed with"),
        (("--tokens", "1", "--tokenizer", "x"), "--tokenizer: only with --input-file"),
        (("--tokens", "1", "--config", LLAMA, "--engine", NOWHERE), "not allowed with"),
        (("--tokens", "1", "--config", LLAMA), "--pool, or --gpu-memory and --weights: needed"),
        (("--tokens", "1", "--config", LLAMA, "--pool", "1GB", "--tp", "0"), "tp: should be from 1"),
        (("--tokens", "1", "--config", "/nowhere", "--pool", "1GB"), "/nowhere: No such file"),
        (("--tokens", "1", "--engine", NOWHERE, "--pool", "1GB"), "--pool: only with --config"),
        (("--tokens", "1", "--engine", NOWHERE, "--block-size", "16"), "--block-size: only with --config"),
        (("--tokens", "1", "--engine", NOWHERE, "--name", "a"), "--name: only for"),
        (("--tokens", "1", "--bearer-token-file", "x"), "--bearer-token-file: only with --engine"),
        (("--tokens", "1", "--headroom", "1GB"), "--headroom: only with --activation-bytes-per-token"),
        (("--tokens", "1", "--prefill-chunk", "1"), "--prefill-chunk: only with --activation-bytes-per-token"),
        (("--tokens", "1", "--activation-bytes-per-token", "0"), "should be above 0"),
        (("--tokens", "1", "--engine", "127.0.0.1:8000"), "neither http:// nor https://"),
        (("--tokens", "1", "--engine", "http://127.0.0.1:many"), "the URL: Port could not be cast"),
        (("--tokens", "1", "--engine", "http://["), "the URL: Invalid IPv6 URL"),
        (("--tokens", "1", "--daemon", "nowhere"), "neither http:// nor https://"),
        (("--tokens", "1", "--timeout", "0"), "should be above 0"),
        (("--input-file", "/nowhere", "--engine", NOWHERE), "/nowhere: No such file"),
    ],
)
def test_wrong_usage(ask: Ask, arguments: tuple[str, ...], message: str) -> None:
    done = ask(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_the_program() -> None:
    for tokens, code in (("8191", 0), ("8192", 4)):
        done = oomcast("context", "--config", LLAMA, "--pool", "1GiB", "--tokens", tokens)
        assert (done.returncode, done.stderr) == (code, "")
        assert "breaks first" in done.stdout
    done = oomcast("context", "--engine", f"http://127.0.0.1:{free_port()}", "--tokens", "10")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("oomcast context: http://127.0.0.1:")


def test_other_commands_do_without_it() -> None:
    program = [sys.executable, "-X", "importtime", "-m", "oomcast", "example"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert "oomcast.example" in done.stderr
    assert "oomcast.context" not in done.stderr
