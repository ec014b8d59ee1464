"""The client's messages where the daemon is busy, late, away or another one, and where senders are many."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from daemon.client_receiver import Receiver
from fakes import FakeClock
from oomcast.client import RETRY_SECONDS, Client


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
    assert (client.sent, client.lost, client.buffered) == (taken + 1, 1, 0)
    client.close()
    assert (client.sent, client.lost, client.buffered) == (taken + 1, 1, 0)


def test_a_signal_handler_may_send_at_any_point(receiver: Receiver) -> None:
    calls = {"own": 0, "handler": 0}
    told = 0

    def send(who: str) -> None:
        ours.send(status=200, prompt_tokens=1)
        calls[who] += 1

    def read() -> int:
        return sum(message.get("lost", 0) for message in receiver.read())

    with closing(Client(receiver.path, "llama", buffer=4)) as ours:
        before = signal.signal(signal.SIGALRM, lambda *_: send("handler"))
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 5e-5)
        try:
            while calls["handler"] < 5000:
                send("own")
                told += read()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        told += read()
        send("own")
        told += read()
        assert ours.sent + ours.lost + ours.buffered == sum(calls.values())
        assert (ours.buffered, told) == (0, ours.lost)


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
