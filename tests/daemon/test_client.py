"""The client against a real socket that the test reads, or does not, or takes away."""

import ast
import http
import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.client_receiver import Receiver
from fakes import FakeClock
from oomcast.client import Client

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
FULL = {
    "prompt_tokens": 131500,
    "output_tokens": 12,
    "cached_tokens": 128,
    "status": 500,
    "empty": True,
    "trace_id": TRACE_ID,
    "user": True,
    "tenant": False,
    "retries": 3,
    "breaker": "half_open",
    "ttft_seconds": 1.25,
    "e2e_seconds": 30.5,
}
PACKAGE = Path(__file__).parents[2] / "daemon/oomcast/client"


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path / "requests.sock")
    yield receiver
    receiver.die()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(receiver: Receiver, clock: FakeClock) -> Iterator[Client]:
    client = Client(receiver.path, "llama", clock=clock.monotonic)
    yield client
    client.close()


def test_a_message_says_all_that_is_known_and_no_more(client: Client, receiver: Receiver) -> None:
    client.send(**FULL)  # type: ignore[arg-type] # each value is of its own type
    client.send(status=200, prompt_tokens=7)
    client.send(status=503)
    assert receiver.read() == [
        {"v": 1, "engine": "llama", **FULL},
        {"v": 1, "engine": "llama", "status": 200, "prompt_tokens": 7},
        {"v": 1, "engine": "llama", "status": 503},
    ]
    assert (client.sent, client.lost, client.buffered, client.unknown, client.left_out) == (3, 0, 0, 0, 0)


def test_an_answered_request_of_unknown_length_is_no_message(client: Client, receiver: Receiver) -> None:
    client.send(status=399)
    client.send(status=200, prompt_tokens="12")  # type: ignore[arg-type] # that is the test
    client.send(status=400)
    assert [message["status"] for message in receiver.read()] == [400]
    assert (client.unknown, client.lost, client.left_out) == (2, 0, 1)


class Breaker(StrEnum):
    OPEN = "open"


class Disguised:
    """Raises at whatever is asked of it."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("output_tokens", 0, 0),
        ("output_tokens", 1 << 40, 1 << 40),
        ("output_tokens", (1 << 40) + 1, None),
        ("output_tokens", -1, None),
        ("output_tokens", 1.0, None),
        ("output_tokens", True, None),
        pytest.param("output_tokens", Disguised(), None, id="disguised"),
        ("cached_tokens", 1000, 1000),
        ("cached_tokens", 1001, None),
        ("status", http.HTTPStatus.BAD_GATEWAY, 502),
        ("status", 100, 100),
        ("status", 599, 599),
        ("empty", False, False),
        ("empty", 1, None),
        ("empty", "yes", None),
        ("trace_id", TRACE_ID, TRACE_ID),
        ("trace_id", TRACE_ID.upper(), None),
        ("trace_id", TRACE_ID + "\n", None),
        ("trace_id", TRACE_ID[1:], None),
        ("trace_id", "0" * 32, None),
        ("trace_id", int(TRACE_ID, 16), None),
        ("user", True, True),
        ("tenant", "acme", None),
        ("retries", 0, 0),
        ("retries", "3", None),
        ("breaker", "closed", "closed"),
        ("breaker", "ajar", None),
        ("breaker", Breaker.OPEN, "open"),
        ("ttft_seconds", 2, 2),
        ("ttft_seconds", 1e6, 1e6),
        ("ttft_seconds", 1e-9, 1e-9),
        ("ttft_seconds", -0.1, None),
        ("ttft_seconds", float("nan"), None),
        ("e2e_seconds", float("inf"), None),
        ("e2e_seconds", 1_000_001, None),
        ("prompt", "what nobody may see", None),
        ("v", 2, None),
        ("engine", "other", None),
    ],
)
def test_a_value_that_the_daemon_would_refuse_is_left_out(
    client: Client, receiver: Receiver, field: str, value: object, told: object
) -> None:
    client.send(**{"status": 200, "prompt_tokens": 1000, field: value})  # type: ignore[arg-type] # that is the test
    (message,) = receiver.read()
    expected = {"v": 1, "engine": "llama", "status": 200, "prompt_tokens": 1000}
    assert message == (expected if told is None else {**expected, field: told})
    assert client.left_out == (told is None)


@pytest.mark.parametrize("status", [None, 99, 600, "200", 200.0, True])
def test_what_has_no_status_is_lost_and_told_so(client: Client, receiver: Receiver, status: Any) -> None:
    client.send(status=status, prompt_tokens=1)
    assert (client.lost, receiver.read()) == (1, [])
    client.send(status=200, prompt_tokens=1)
    client.send(status=200, prompt_tokens=1)
    assert [message.get("lost") for message in receiver.read()] == [1, None]


@pytest.mark.parametrize("engine", ["", "x" * 129, "a\nb", "a\x00", "\ud800"])
def test_an_engine_has_a_name_that_can_be_a_label(tmp_path: Path, engine: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        Client(tmp_path / "socket", engine)


def test_the_longest_message_fits(tmp_path: Path, receiver: Receiver) -> None:
    client = Client(receiver.path, '"\\' * 32 + "\U0001f916" * 64)
    fields: dict[str, Any] = {**FULL, **dict.fromkeys(("prompt_tokens", "output_tokens", "cached_tokens"), 1 << 40)}
    fields.update(retries=1 << 40, ttft_seconds=1.2345678901234567e-200, e2e_seconds=123456.78901234567)
    client.lost = 1 << 50
    client.send(**fields)
    client.close()
    (message,) = receiver.read()
    assert message.pop("lost") == 1 << 40
    assert message == {"v": 1, "engine": '"\\' * 32 + "\U0001f916" * 64, **fields}


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 600),
    st.floats(),
    st.text(),
    st.binary(),
    st.sampled_from([TRACE_ID, "open", object(), http.HTTPStatus.OK, 10**5000]),
    st.lists(st.integers()),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*FULL, "lost", "v", "engine", "other", "\ud800\n"]), ANYTHING)))
def test_nothing_that_is_given_raises_and_each_call_is_counted(calls: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as directory:
        receiver = Receiver(Path(directory) / "socket")
        client = Client(receiver.path, "llama", buffer=2)
        arrived = []
        for call in calls:
            client.send(**call)
            arrived += receiver.read()
        assert client.sent + client.lost + client.unknown == len(calls)
        assert client.buffered == 0
        assert len(arrived) == client.sent
        assert all({"v", "engine", "status"} <= message.keys() <= {"v", "engine", "lost", *FULL} for message in arrived)
        client.close()
        receiver.close()


def test_it_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "oomcast/client", ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules)\n"
        "import oomcast.client, oomcast.client.asgi\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = done.stdout.split()
    ours = ["oomcast", *(f"oomcast.client{suffix}" for suffix in ("", ".answers", ".asgi", ".asked", ".message"))]
    assert [name for name in loaded if name.partition(".")[0] == "oomcast"] == ours
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"oomcast"}


def test_older_interpreters_read_it() -> None:
    for module in PACKAGE.glob("*.py"):
        text = module.read_text()
        ast.parse(text, feature_version=(3, 9))
        assert "from __future__ import annotations" in text
