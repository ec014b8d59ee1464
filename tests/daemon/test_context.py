"""`oomcast context`: over configs, of a file, wrong usage, and as a program."""

import subprocess
import sys
from pathlib import Path

import pytest

from daemon.context_harness import NOWHERE, ask
from daemon.kv.samples import CONFIGS
from e2e.program import oomcast
from e2e.stack import free_port

LLAMA = str(CONFIGS / "llama-3-8b.json")


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
def test_a_config(arguments: tuple[str, ...], code: int, expected: list[tuple[str, int]]) -> None:
    done = ask("--config", LLAMA, *arguments, "--format", "json")
    assert (done.code, done.limits) == (code, expected)


def test_whether_the_input_breaks_it_or_the_answer() -> None:
    for tokens, part in (("8192", "answer"), ("8193", "input")):
        done = ask("--config", LLAMA, "--pool", "2GiB", "--tokens", tokens, "--format", "json")
        assert done.json["cases"][0]["breaks"] == [{"limit": "max_model_len", "at": 8193, "in": part}]


def test_a_pool_in_which_nothing_grows() -> None:
    given = ("--config", str(CONFIGS / "mistral-7b-v0.1.json"), "--pool", "1GiB", "--tokens", "9000")
    assert ask(*given, "--format", "json").limits == [("max_model_len", 32769), ("kv_pool_empty", None)]
    done = ask(*given, "--output-tokens", "23769")
    assert "breaks first  longest request that is accepted: at token 32,769, in the answer\n" in done.out
    assert "          never KV pool, empty\n" in done.out
    assert "fits          no\n" in done.out


def test_a_file_whose_tokens_are_not_counted(tmp_path: Path) -> None:
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
def test_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
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
