"""`oomcast kv`, as a person and as a program has it."""

import json
import subprocess
import sys

import pytest

from daemon.kv.samples import CONFIGS
from e2e.program import oomcast

LLAMA = str(CONFIGS / "llama-3.1-70b.json")

TEXT = """\
model         llama: 80 full_attention
cache         fp8, blocks of 16 tokens
GPUs          4: tensor parallel 4, pipeline parallel 1
config limit  131,072 tokens (max_position_embeddings, RoPE scaling llama3)
per token     40,960 B (40.00 KiB) on each GPU, 163,840 B (160.00 KiB) on all, 163,840 B (160.00 KiB) without copies
per sequence  0 B on each GPU, beside what grows

CONTEXT    TOKENS      BYTES, EACH GPU       GIB      BYTES, ALL GPUS       GIB  FIT AT ONCE
    32K    32,768        1,342,177,280      1.25        5,368,709,120      5.00           27
    64K    65,536        2,684,354,560      2.50       10,737,418,240     10.00           13
   128K   131,072        5,368,709,120      5.00       21,474,836,480     20.00            6
   200K   200,000        8,192,000,000      7.63       32,768,000,000     30.52            4
     1M 1,048,576       42,949,672,960     40.00      171,798,691,840    160.00            0

SEQUENCES LONGEST CONTEXT THAT FITS IN 36,750,000,000 B (34.23 GiB) ON EACH GPU
        1 897,216 tokens
        3 299,072 tokens

note: max_position_embeddings: as the config has it; engines disagree on whether llama3 scaling is in it already
"""


def test_text() -> None:
    room = ("--gpu-memory", "80GB", "--weights", "35.25GB", "--sequences", "1,3")
    done = oomcast("kv", LLAMA, "--dtype", "fp8", "--tp", "4", "--engine", "vllm", *room)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", TEXT)


def test_json() -> None:
    done = oomcast("kv", LLAMA, "--tp", "16", "--pool", "40GiB", "--sequences", "2", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["layers"] == [{"kind": "full_attention", "layers": 80, "window": None}]
    assert found["config_limit"] == {"field": "max_position_embeddings", "tokens": 131_072}
    assert (found["bytes_per_token"], found["bytes_per_token_all"]) == (40_960, 655_360)
    assert (found["bytes_per_token_once"], found["bytes_per_sequence"]) == (327_680, 0)
    assert found["contexts"][3] == {
        "context": "200K",
        "tokens": 200_000,
        "bytes": 8_192_000_000,
        "bytes_all": 131_072_000_000,
        "fit_at_once": 5,
    }
    assert [row["tokens"] for row in found["contexts"]] == [32_768, 65_536, 131_072, 200_000, 1_048_576]
    assert found["pool_bytes"] == 40 << 30
    assert found["longest"] == [{"sequences": 2, "tokens": 524_288}]


def test_without_room_nothing_is_said_of_it() -> None:
    done = oomcast("kv", str(CONFIGS / "gemma-3-27b.json"))
    assert "52 sliding_attention of 1,024 tokens, 10 full_attention" in done.stdout
    assert "per sequence  436,207,616 B (416.00 MiB)" in done.stdout
    assert "FIT" not in done.stdout
    done = oomcast("kv", str(CONFIGS / "gemma-3-27b.json"), "--format", "json")
    assert not {"pool_bytes", "longest"} & json.loads(done.stdout).keys()


def test_any_length_fits_where_nothing_grows() -> None:
    done = oomcast("kv", str(CONFIGS / "mistral-7b-v0.1.json"), "--pool", "1GiB", "--sequences", "1,4")
    assert "        1 any\n        4 2,048 tokens\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("/nowhere",), "oomcast kv: /nowhere: No such file or directory"),
        ((str(CONFIGS / "README.md"),), "no JSON"),
        ((LLAMA, "--dtype", "fp7"), "dtype: 'fp7' is not known"),
        ((LLAMA, "--tp", "0"), "tp: should be from 1"),
        ((LLAMA, "--tp", "3"), "num_key_value_heads: 8 heads cannot be split over 3 ranks"),
        ((LLAMA, "--block-size", "-1"), "block: should be from 0"),
        ((LLAMA, "--pool", "many"), "'many' is no size"),
        ((LLAMA, "--pool", "1GB", "--weights", "1GB"), "--pool: says it all"),
        ((LLAMA, "--gpu-memory", "80GB"), "--gpu-memory and --weights: needed both"),
        ((LLAMA, "--gpu-memory", "80GB", "--weights", "72GB"), "leave nothing of 72000000000"),
        ((LLAMA, "--utilization", "1.1"), "'1.1' should be above 0 and at most 1"),
        ((LLAMA, "--sequences", "0"), "'0' should be numbers from 1"),
        ((LLAMA, "--engine", "other"), "invalid choice"),
        ((), "required: CONFIG"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str) -> None:
    done = oomcast("kv", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_other_commands_do_without_it() -> None:
    program = [sys.executable, "-X", "importtime", "-m", "oomcast", "metrics"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert "oomcast.table" in done.stderr
    assert "oomcast.kv" not in done.stderr
