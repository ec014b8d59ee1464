"""Traces, and what is wrong with them."""

import gzip
from pathlib import Path

import pytest

from simulator import Request, TraceError, azure, mooncake

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
LINE = '{"timestamp": 2500, "input_length": 513, "output_length": 7, "hash_ids": [4, 9]}\n'
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def packed(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_mooncakes_format(tmp_path: Path) -> None:
    text = LINE + LINE.replace("2500", "4000")
    assert mooncake(packed(tmp_path / "t", text)) == [Request(0, 513, 7, (4, 9)), Request(1.5, 513, 7, (4, 9))]


def test_azures_format(tmp_path: Path) -> None:
    text = f"{HEADER}2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:16:47.1805900,396,109"
    first, second = azure(packed(tmp_path / "t", text))
    assert first == Request(0, 374, 44)
    assert (second.prompt_tokens, second.answer_tokens) == (396, 109)
    assert second.arrival == pytest.approx(60.5)


def test_the_published_ones() -> None:
    conversation = mooncake(TRACES / "mooncake-conversation-first-half.jsonl.gz")
    assert (len(conversation), max(one.prompt_tokens for one in conversation)) == (6015, 123_192)
    synthetic = mooncake(TRACES / "mooncake-synthetic.jsonl.gz")
    assert (len(synthetic), max(one.prompt_tokens for one in synthetic)) == (3993, 191_378)
    azures = azure(TRACES / "azure-llm-2023-conv.csv.gz")
    assert (len(azures), max(one.prompt_tokens for one in azures)) == (19_366, 14_050)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("{", ":2: Expecting"),
        ("[]", ":2: list indices"),
        ("[" * 100_000, ":2: maximum recursion"),
        (LINE.replace("513", "true"), ":2: True is no whole number"),
        (LINE.replace("513", "0").replace("4, 9", ""), ":2: prompt, answer"),
        (LINE.replace("513", "512"), ":2: 2 hash_ids for 512 tokens"),
        (LINE.replace("9]", '"x"]'), ":2: 'x' is no whole number"),
        (LINE.replace("hash_ids", "ids"), ":2: no 'hash_ids'"),
        (LINE.replace("2500", "2499"), ":2: arrives before"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, wrong: str, why: str) -> None:
    with pytest.raises(TraceError) as told:
        mooncake(packed(tmp_path / "t", LINE + wrong))
    assert str(told.value).startswith(f"{tmp_path}/t{why}")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n", ":1: the columns are not TIMESTAMP"),
        (f"{HEADER}yesterday,1,1\n", ":2: Invalid isoformat"),
        (f"{HEADER}2023-11-16,1\n", ":2: not enough values"),
        (f"{HEADER}2023-11-16,1,0\n", ":2: prompt, answer"),
    ],
)
def test_a_malformed_row_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TraceError) as told:
        azure(packed(tmp_path / "t", text))
    assert str(told.value).startswith(f"{tmp_path}/t{why}")


def test_a_damaged_file_is_an_error_and_no_shorter_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    whole = gzip.compress(LINE.encode() * 50)
    for damaged in (whole[:-9], whole[:20] + b"\xff" * 20 + whole[40:], b"no gzip"):
        path.write_bytes(damaged)
        with pytest.raises(TraceError):
            mooncake(path)


def test_what_a_request_is() -> None:
    for wrong in ((-1.0, 1, 1), (float("inf"), 1, 1), (float("nan"), 1, 1), (0.0, 0, 1), (0.0, 1, 0)):
        with pytest.raises(ValueError, match=r"arrives|at least one"):
            Request(*wrong)
