"""Who may send, how much, and the life of the socket."""

import array
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from collectors.requests.support import Bench, received, settle, values
from e2e.program import until
from fakes import FakeClock
from oomcast_collectors.requests import RequestsError, intake
from oomcast_collectors.requests.address import AddressError, bind

OTHERS = 54_321
VALID = b'{"v":1,"engine":"llama","prompt_tokens":1,"status":200}'
root = pytest.mark.skipif(os.geteuid() != 0, reason="sending as another user takes root")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "requests"]


@root
@pytest.mark.parametrize(
    ("settings", "uid", "gid", "outcome"),
    [
        ({}, 0, 0, "accepted"),
        ({}, OTHERS, 0, "refused"),
        ({}, OTHERS, OTHERS, "refused"),
        ({"uids": [OTHERS]}, OTHERS, 0, "accepted"),
        ({"uids": [OTHERS]}, 0, 0, "refused"),
        ({"uids": [OTHERS]}, 0, OTHERS, "refused"),
        ({"gids": [OTHERS]}, 7, OTHERS, "accepted"),
        ({"gids": [OTHERS]}, 0, 0, "accepted"),
        ({"gids": [OTHERS]}, OTHERS, 0, "refused"),
        ({"uids": [], "gids": [OTHERS]}, 0, 0, "refused"),
        ({"uids": [(1 << 32) - 2]}, (1 << 32) - 2, 0, "accepted"),
    ],
)
def test_who_may_send(bench: Bench, settings: dict[str, list[int]], uid: int, gid: int, outcome: str) -> None:
    collector, sender = bench.receiving(**settings)
    sender.raw(b"not even looked at" if outcome == "refused" else VALID, uid, gid)
    if (uid, gid) == (0, 0):
        sender.raw(VALID)  # the kernel knows who sends, whether that is told or not
    assert settle(collector, sender).keys() == {outcome}


@root
def test_each_stranger_is_told_once_and_costs_nobody_the_rate(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    collector, sender = bench.receiving(clock=FakeClock(), rate=10)
    for _ in range(200):
        sender.raw(VALID, OTHERS, 7)
        sender.raw(VALID, OTHERS, 8)
    for _ in range(10):
        sender.raw(VALID)
    assert settle(collector, sender) == {"refused": 400, "accepted": 10}
    assert [record.getMessage() for record in caplog.records] == [
        f"messages of uid {OTHERS}, gid {gid} are refused" for gid in (7, 8)
    ]


def test_descriptors_that_are_sent_along_do_not_arrive(bench: Bench) -> None:
    collector, sender = bench.receiving()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    for _ in range(50):
        rights = array.array("i", range(3))
        sender.socket.sendmsg([VALID], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        sender.sent += 1
    assert settle(collector, sender) == {"accepted": 50}
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


def test_the_size_of_a_message(bench: Bench) -> None:
    collector, sender = bench.receiving()
    sender.raw(VALID.ljust(2048))
    sender.raw(VALID.ljust(2049))
    sender.raw(VALID.ljust(100_000))
    sender.raw(b"")
    assert settle(collector, sender) == {"accepted": 1, "invalid": 3}


def test_above_the_rate_nothing_is_looked_at(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    collector, sender = bench.receiving(clock=clock, rate=100)
    for _ in range(150):
        sender.raw(VALID)
    sender.raw(b"nonsense")
    assert settle(collector, sender) == {"accepted": 100, "rate_limited": 51}
    clock.advance(0.255)
    for _ in range(30):
        sender.raw(VALID)
    assert settle(collector, sender) == {"accepted": 125, "rate_limited": 56}
    # Silence saves up no more than a second's worth.
    clock.advance(3600)
    for _ in range(150):
        sender.raw(VALID)
    assert settle(collector, sender) == {"accepted": 225, "rate_limited": 106}
    assert [record.getMessage() for record in caplog.records] == ["messages above 100 a second are not taken"]


def test_invalid_messages_count_towards_the_rate(bench: Bench) -> None:
    collector, sender = bench.receiving(clock=FakeClock(), rate=10)
    for _ in range(20):
        sender.raw(b"nonsense")
    assert settle(collector, sender) == {"invalid": 10, "rate_limited": 10}


def test_each_fault_is_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    collector, sender = bench.receiving()
    for _ in range(3):
        sender.message(status=600)
        sender.message(v=2)
        sender.raw(b"nonsense")
    assert settle(collector, sender) == {"invalid": 6, "version": 3}
    assert [record.getMessage() for record in caplog.records] == [
        "invalid messages: status: less than equal",
        "invalid messages: only version 1 is known",
        "invalid messages: json invalid",
    ]


def test_a_flood_of_what_is_turned_away_gets_a_part_of_a_core(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_PAUSE", 0.05)  # more than receiving them takes
    clock = FakeClock()
    collector, sender = bench.receiving(clock=clock, rate=1)
    sender.raw(VALID)
    settle(collector, sender)
    began = time.monotonic()
    for _ in range(2561):
        sender.raw(VALID)
    assert settle(collector, sender) == {"accepted": 1, "rate_limited": 2561}
    assert time.monotonic() - began >= 10 * 0.05


def test_stop_removes_the_socket_at_once_and_comes_back_for_good(bench: Bench, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names only
    collector = bench.collector()
    collector.collect()
    assert len(threads()) == 1
    began = time.monotonic()
    collector.stop(began + 5)
    assert time.monotonic() - began < 1
    assert threads() == []
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
    # A run that was given up may come to its end after the stop.
    collector.collect()
    assert threads() == []
    assert list(tmp_path.iterdir()) == []


def test_stop_with_a_full_queue(bench: Bench, tmp_path: Path) -> None:
    collector = bench.collector(rate=1)
    collector.collect()
    sender = bench.sender()
    sender.socket.setblocking(False)
    gone = threading.Event()

    def send() -> None:
        while not gone.is_set():
            try:
                sender.raw(VALID)
            except BlockingIOError:
                continue
            except OSError:
                return

    sending = threading.Thread(target=send)
    sending.start()
    until(lambda: received(collector).get("rate_limited", 0) > 1000)
    began = time.monotonic()
    collector.stop(began + 5)
    assert time.monotonic() - began < 1
    gone.set()
    sending.join()
    assert list(tmp_path.iterdir()) == []


def test_stop_before_the_first_run(bench: Bench) -> None:
    bench.collector().stop(time.monotonic() + 1)
    assert threads() == []


def test_a_path_that_cannot_be_had_is_tried_again_each_run(bench: Bench) -> None:
    collector = bench.collector(socket=bench.path.parent / "later" / "socket")
    for _ in range(2):
        with pytest.raises(AddressError, match="later does not exist"):
            collector.collect()
    (bench.path.parent / "later").mkdir()
    bench.path = bench.path.parent / "later" / "socket"
    collector.collect()
    sender = bench.sender()
    sender.raw(VALID)
    assert settle(collector, sender) == {"accepted": 1}


def test_a_socket_that_somebody_removed_is_made_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    collector, first = bench.receiving()
    first.raw(VALID)
    settle(collector, first)
    bench.path.unlink()
    collector.collect()
    collector.collect()
    second = bench.sender()
    second.raw(VALID)
    assert settle(collector, first, second) == {"accepted": 2}
    assert [record.getMessage() for record in caplog.records] == [
        f"{bench.path} was removed or replaced; it is bound anew"
    ]
    assert len(threads()) == 1


def test_a_socket_that_another_process_replaced_is_a_failure(bench: Bench) -> None:
    collector, _ = bench.receiving()
    bench.path.unlink()
    other = bind(bench.path, 0o600, None)
    for _ in range(2):
        with pytest.raises(AddressError, match="another process receives there"):
            collector.collect()
    assert threads() == []
    assert other.is_ours()
    other.close()
    collector.collect()
    assert len(threads()) == 1


class _Breaks(FakeClock):
    broken = False

    def monotonic(self) -> float:
        if self.broken and threading.current_thread().name == "requests":
            self.broken = False
            raise RuntimeError("no time")
        return super().monotonic()


def test_after_a_defect_the_next_run_says_so_and_receives_again(bench: Bench) -> None:
    clock = _Breaks()
    collector, first = bench.receiving(clock=clock)
    first.raw(VALID)
    settle(collector, first)
    clock.broken = True
    first.raw(VALID)
    until(lambda: not threads())
    with pytest.raises(RequestsError, match="no time"):
        collector.collect()
    second = bench.sender()
    second.raw(VALID)
    until(lambda: received(collector) == {"accepted": 2})
    assert values(collector)['responses_total{code="2xx",engine="llama",up_to="512"}'] == 2
