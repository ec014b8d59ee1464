import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oomcast.notify import Notifier


class Manager:
    """The receiving end of sd_notify: a real datagram socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(5)

    def receive(self) -> str:
        return self.socket.recv(4096).decode()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Manager, Notifier]]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@oomcast-test-{os.getpid()}"
    receiver = Manager("\0" + name[1:] if name.startswith("@") else name)
    yield receiver, Notifier({"NOTIFY_SOCKET": name})
    receiver.socket.close()


def test_every_message(manager: tuple[Manager, Notifier]) -> None:
    receiver, notifier = manager
    assert notifier.ready()
    assert receiver.receive() == "READY=1"
    assert notifier.ready("serving on :19128")
    assert receiver.receive() == "READY=1\nSTATUS=serving on :19128"
    assert notifier.status("12 collectors")
    assert receiver.receive() == "STATUS=12 collectors"
    assert notifier.watchdog()
    assert receiver.receive() == "WATCHDOG=1"
    assert notifier.stopping()
    assert receiver.receive() == "STOPPING=1"


def test_reloading_carries_the_monotonic_time(manager: tuple[Manager, Notifier]) -> None:
    receiver, notifier = manager
    before = time.monotonic_ns() // 1000
    assert notifier.reloading()
    first, second = receiver.receive().split("\n")
    assert first == "RELOADING=1"
    key, _, value = second.partition("=")
    assert key == "MONOTONIC_USEC"
    assert before <= int(value) <= time.monotonic_ns() // 1000


def test_a_status_cannot_begin_another_assignment(manager: tuple[Manager, Notifier]) -> None:
    receiver, notifier = manager
    assert notifier.status("failed: a\nMAINPID=1\0\udc80" + "x" * 1000)
    text = receiver.receive()
    assert text.startswith("STATUS=failed: a MAINPID=1  xxx")
    assert len(text) == len("STATUS=") + 500


@pytest.mark.parametrize("address", ["", "relative", "@", "vsock:2:1", "/nonexistent/socket", "/" + "x" * 200, "/a\0b"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address} if address else {})
    assert not notifier.ready()
    assert not notifier.reloading()
    assert not notifier.stopping()
    assert not notifier.status("x")
    assert not notifier.watchdog()


def test_a_lost_manager_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": "/nonexistent/socket"})
    for _ in range(3):
        assert not notifier.watchdog()
    assert [record.getMessage() for record in caplog.records] == [
        "systemd cannot be notified: [Errno 2] No such file or directory"
    ]


def test_a_full_socket_does_not_block(manager: tuple[Manager, Notifier]) -> None:
    receiver, notifier = manager
    began = time.monotonic()
    sent = 0
    while notifier.watchdog():
        sent += 1
    assert 0 < sent < 100_000
    assert time.monotonic() - began < 5
    assert receiver.receive() == "WATCHDOG=1"
    assert notifier.watchdog()


def test_sending_leaves_no_descriptor(manager: tuple[Manager, Notifier]) -> None:
    _, notifier = manager
    before = len(list(Path("/proc/self/fd").iterdir()))
    notifier.ready()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "9" * 5000}, None),
        ({"WATCHDOG_USEC": "٣"}, None),
    ],
)
def test_watchdog_interval(environ: dict[str, str], seconds: float | None) -> None:
    assert Notifier(environ).watchdog_interval == seconds
