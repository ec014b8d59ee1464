"""The client against a real socket that the test reads, or does not, or takes away."""

import ast
import http
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from daemon.client_receiver import Receiver
from fakes import FakeClock
from oomcast.client import RETRY_SECONDS, Client

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


def capacity(client: Client) -> int:
    """Sends until the kernel takes no more, and says how many it took."""
    while not client.buffered:
        client.send(status=200, prompt_tokens=1)
    return client.sent


def test_a_message_says_all_that_is_known_and_no_more(client: Client, receiver: Receiver) -> None:
    client.send(**FULL)  # type: ignore[arg-type]
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
    client.send(status=200, prompt_tokens="12")  # type: ignore[arg-type]
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
    client.send(**{"status": 200, "prompt_tokens": 1000, field: value})  # type: ignore[arg-type]
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


def test_a_full_queue_is_waited_for_in_a_buffer_that_has_an_end(receiver: Receiver, clock: FakeClock) -> None:
    client = Client(receiver.path, "llama", buffer=3, clock=clock.monotonic)
    taken = capacity(client)
    for number in range(1, 6):
        client.send(status=200, prompt_tokens=1, retries=number)
    assert (client.sent, client.buffered, client.lost) == (taken, 3, 3)

    receiver.read()
    client.send(status=200, prompt_tokens=1, retries=6)
    messages = receiver.read()
    # The oldest were dropped, and the first that came through tells it.
    assert [(message["retries"], message.get("lost")) for message in messages] == [
        (3, 3),
        (4, None),
        (5, None),
        (6, None),
    ]
    assert (client.sent, client.buffered, client.lost) == (taken + 4, 0, 3)
    client.close()


def test_without_a_buffer_a_full_queue_loses(receiver: Receiver) -> None:
    client = Client(receiver.path, "llama", buffer=0)
    while not client.lost:
        client.send(status=200, prompt_tokens=1)
    receiver.read()
    client.send(status=200, prompt_tokens=1)
    assert [message.get("lost") for message in receiver.read()] == [1]
    client.close()


def test_a_daemon_that_comes_later_is_found_within_a_second(tmp_path: Path, clock: FakeClock) -> None:
    client = Client(tmp_path / "late", "llama", clock=clock.monotonic)
    client.send(status=200, prompt_tokens=1)
    receiver = Receiver(tmp_path / "late")
    clock.advance(RETRY_SECONDS - 0.01)
    client.send(status=200, prompt_tokens=2)
    assert (client.buffered, receiver.read()) == (2, [])
    clock.advance(0.01)
    client.send(status=200, prompt_tokens=3)
    assert [message["prompt_tokens"] for message in receiver.read()] == [1, 2, 3]
    client.close()
    receiver.close()


def test_a_daemon_that_is_restarted_misses_nothing(
    tmp_path: Path, client: Client, receiver: Receiver, clock: FakeClock
) -> None:
    client.send(status=200, prompt_tokens=1)
    clock.advance(RETRY_SECONDS)
    receiver.close()
    client.send(status=200, prompt_tokens=2)
    assert client.buffered == 1
    clock.advance(RETRY_SECONDS)
    again = Receiver(receiver.path)
    client.send(status=200, prompt_tokens=3)
    assert [message["prompt_tokens"] for message in again.read()] == [2, 3]

    # The file is another one already when the loss is noticed.
    clock.advance(RETRY_SECONDS)
    again.close()
    third = Receiver(receiver.path)
    client.send(status=200, prompt_tokens=4)
    assert [message["prompt_tokens"] for message in third.read()] == [4]
    third.close()


def test_a_daemon_that_dies_without_a_word_leaves_its_file(
    client: Client, receiver: Receiver, clock: FakeClock
) -> None:
    client.send(status=200, prompt_tokens=1)
    receiver.die()
    for number in range(2, 5):
        clock.advance(RETRY_SECONDS)
        client.send(status=200, prompt_tokens=number)
    assert (client.sent, client.buffered, client.lost) == (1, 3, 0)


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to(path)])
def test_what_is_no_socket_is_no_daemon(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "path")
    for path in (tmp_path / "path", tmp_path / ("x" * 200), tmp_path / "none" / "socket"):
        client = Client(path, "llama")
        client.send(status=200, prompt_tokens=1)
        assert (client.sent, client.buffered) == (0, 1)
        client.close()
        assert (client.lost, client.buffered) == (1, 0)


def test_a_daemon_that_is_not_there_is_looked_for_once_a_second(tmp_path: Path, clock: FakeClock) -> None:
    attempts = 0
    before = len(list(Path("/proc/self/fd").iterdir()))
    client = Client(tmp_path / "none", "llama", clock=clock.monotonic)
    profile = sys.getprofile()

    def count(frame: object, event: str, function: object) -> None:
        nonlocal attempts
        attempts += event == "c_call" and getattr(function, "__name__", "") == "connect"

    sys.setprofile(count)
    try:
        for _ in range(50):
            client.send(status=200, prompt_tokens=1)
            clock.advance(RETRY_SECONDS / 10)
    finally:
        sys.setprofile(profile)
    assert attempts == 5
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_close_sends_what_waits_and_loses_what_comes_later(client: Client, receiver: Receiver) -> None:
    taken = capacity(client)
    receiver.read()
    client.close()
    assert len(receiver.read()) == 1
    client.send(status=200, prompt_tokens=1)
    client.close()
    assert (client.sent, client.lost, client.buffered) == (taken + 1, 1, 0)


def test_threads_send_at_once(client: Client, receiver: Receiver) -> None:
    threads = [threading.Thread(target=send_many, args=(client, number), name="sender") for number in range(8)]
    arrived: list[dict[str, Any]] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        arrived += receiver.read()
    client.send(status=200, prompt_tokens=0)
    arrived += receiver.read()
    while client.buffered:
        client.send(status=200, prompt_tokens=0)
        arrived += receiver.read()
    ours = [message for message in arrived if message["prompt_tokens"]]
    assert client.sent == len(arrived)
    # Told once each, wherever they were dropped.
    assert len(ours) + client.lost == 8 * 500
    assert sum(message.get("lost", 0) for message in arrived) == client.lost
    for number in range(8):
        order = [message["retries"] for message in ours if message["prompt_tokens"] == number + 1]
        assert order == sorted(order)


def send_many(client: Client, number: int) -> None:
    for index in range(500):
        client.send(status=200, prompt_tokens=number + 1, retries=index)


def test_a_child_has_a_client_of_its_own(client: Client, receiver: Receiver) -> None:
    taken = capacity(client)
    held = threading.Event()
    go = threading.Event()

    def hold() -> None:
        with client._lock:
            held.set()
            go.wait(20)

    holder = threading.Thread(target=hold, name="holder", daemon=True)
    holder.start()
    assert held.wait(20)
    child = os.fork()
    if child == 0:
        # The lock that a thread of the parent holds is nobody's here, and what waits there is the parent's to send.
        receiver.read()
        client.send(status=200, prompt_tokens=99)
        os._exit(0 if (client.sent, client.lost, client.buffered) == (1, 0, 0) else 1)
    _, status = os.waitpid(child, 0)
    go.set()
    holder.join(20)
    assert status == 0
    assert [message["prompt_tokens"] for message in receiver.read()] == [99]
    client.send(status=200, prompt_tokens=100)
    assert [message["prompt_tokens"] for message in receiver.read()] == [1, 100]
    assert client.sent == taken + 2


class Life(RuleBasedStateMachine):
    """A daemon that comes and goes, reads or does not, and clients' calls: none is counted twice or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.path = Path(self.directory.name) / "socket"
        self.clock = FakeClock()
        self.client = Client(self.path, "llama", buffer=4, clock=self.clock.monotonic)
        self.receiver: Receiver | None = None
        self.calls = 0
        self.told = 0
        self.vanished = False

    @rule(status=st.sampled_from([200, 500, None]), prompt=st.sampled_from([None, 1]), times=st.integers(1, 20))
    def send(self, status: int | None, prompt: int | None, times: int) -> None:
        for _ in range(times):
            self.client.send(status=status, prompt_tokens=prompt)
        self.calls += times

    @precondition(lambda self: self.receiver is None)
    @rule()
    def come(self) -> None:
        self.receiver = Receiver(self.path)

    @precondition(lambda self: self.receiver is not None)
    @rule()
    def read(self) -> None:
        assert self.receiver is not None
        self.told += sum(message.get("lost", 0) for message in self.receiver.read())

    @precondition(lambda self: self.receiver is not None)
    @rule()
    def go(self) -> None:
        assert self.receiver is not None
        self.read()
        self.receiver.close()
        self.receiver = None

    @rule(seconds=st.sampled_from([0.1, RETRY_SECONDS]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def adds_up(self) -> None:
        client = self.client
        assert client.sent + client.lost + client.buffered + client.unknown == self.calls
        assert client.buffered <= 4
        assert self.told <= client.lost

    def teardown(self) -> None:
        if self.receiver is None:
            self.come()
        self.clock.advance(RETRY_SECONDS)
        self.read()
        self.client.send(status=200, prompt_tokens=1)
        self.read()
        assert (self.client.buffered, self.told) == (0, self.client.lost)
        self.client.close()
        self.go()
        self.directory.cleanup()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


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
