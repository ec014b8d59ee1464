"""Following: from now on, through overruns, gaps, forgeries, garbage and the death of the device."""

import errno
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.kernel_log.support import Bench, values
from fakes import FakeClock
from oomcast.contract import NotPresent, Roots
from oomcast_collectors.kernel_log import KernelLogError
from oomcast_collectors.kernel_log.follow import Follower, Tally, open_log
from oomcast_collectors.kernel_log.record import Record

Eventually = Callable[[Callable[[], bool]], None]
KILLED = b"Killed process %d (hog) total-vm:1kB, anon-rss:1kB, file-rss:0kB\n"


def killed(sequence: int, pid: int, prio: int = 3) -> bytes:
    return b"%d,%d,5,-;Out of memory: " % (prio, sequence) + KILLED % pid


def unplugged(fd: int, size: int) -> bytes:
    raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))


class Heard:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.gaps = 0
        self.let_go = threading.Event()
        self.let_go.set()

    def record(self, record: Record) -> None:
        self.let_go.wait(10)
        self.texts.append(record.text)

    def gap(self) -> None:
        self.gaps += 1


class Device:
    """/dev/kmsg as its reader sees it: a socket that keeps records apart, and errors on order."""

    def __init__(self) -> None:
        self.writer, self._reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader.setblocking(False)
        self.errors: list[OSError] = []
        self.heard = Heard()
        self.tally = Tally()
        fd = os.dup(self._reader.fileno())
        log = logging.getLogger("kernel_log")
        self.follower = Follower(fd, self.tally, self.heard, log, self._read)

    def _read(self, fd: int, size: int) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        return os.read(fd, size)

    def close(self) -> None:
        assert self.follower.stop(2.0)
        self.writer.close()
        self._reader.close()


@pytest.fixture
def device() -> Iterator[Device]:
    made = Device()
    yield made
    made.close()


def test_gaps_overruns_and_long_records(device: Device, eventually: Eventually) -> None:
    device.errors += [OSError(errno.EPIPE, "overrun"), OSError(errno.EPIPE, "overrun"), OSError(errno.EINVAL, "long")]
    for record in (b"6,10,1,-;hello\n K=v\n", killed(11, 1), killed(15, 2), b"garbage", b"\n", killed(16, 3)):
        device.writer.send(record)
    device.follower.start()
    eventually(lambda: len(device.heard.texts) == 3)
    assert device.heard.gaps == 1
    assert device.tally == Tally(records=4, ignored=0, malformed=3, overruns=2, lost=3, sequence=16)


def test_a_sequence_that_starts_again_is_no_gap(device: Device, eventually: Eventually) -> None:
    device.writer.send(killed(900, 1))
    device.writer.send(killed(1, 2))
    device.follower.start()
    eventually(lambda: len(device.heard.texts) == 2)
    assert (device.tally.lost, device.heard.gaps, device.tally.sequence) == (0, 0, 1)


@pytest.mark.parametrize("errors", [0, 2_000_000])
def test_stop_is_prompt_whether_idle_or_busy(errors: int) -> None:
    device = Device()
    device.errors += [OSError(errno.EPIPE, "overrun")] * errors
    device.follower.start()
    time.sleep(0.05)
    begin = time.monotonic()
    device.close()
    assert time.monotonic() - begin < 1.5


def test_stop_does_not_wait_for_a_sink_that_hangs(device: Device) -> None:
    device.heard.let_go.clear()
    device.writer.send(killed(1, 1))
    device.follower.start()
    begin = time.monotonic()
    assert not device.follower.stop(0.2)
    assert time.monotonic() - begin < 1.5
    device.heard.let_go.set()


def test_a_storm_is_read_in_rounds_with_long_pauses(device: Device) -> None:
    device.follower._read = lambda fd, size: b"6,1,1,-;some driver says the same again and again\n"
    begin = time.thread_time()
    pause = device.follower._round()
    took = time.thread_time() - begin
    assert device.tally.records == 20_000
    assert 3.5 * took < pause <= 4 * took
    device.follower.start()


def test_the_end_of_a_device_and_any_other_error_end_the_thread(
    device: Device, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    device.errors.append(OSError(errno.ENODEV, "no such device"))
    device.follower.start()
    eventually(lambda: device.follower.failure is not None)
    assert "no such device" in str(device.follower.failure)
    assert caplog.messages == ["the kernel's log is no longer followed"]
    other = Device()
    other.writer.shutdown(socket.SHUT_WR)
    other.follower.start()
    eventually(lambda: other.follower.failure is not None)
    assert "has ended" in str(other.follower.failure)
    other.close()


def test_only_what_is_printed_after_the_start(bench: Bench) -> None:
    log = bench.dev / "kmsg"
    log.write_bytes(killed(1, 1) + killed(2, 2))
    collector = bench.collector()
    collector.start()
    with log.open("ab") as file:
        file.write(killed(3, 3))
    assert bench.event().fields["pid"] == 3
    assert values(collector)["records_total"] == 1
    os.truncate(log, 0)
    time.sleep(0.5)
    with log.open("ab") as file:
        file.write(b" KEY=value\n" + killed(4, 4)[:20])
        file.flush()
        time.sleep(0.3)
        file.write(killed(4, 4)[20:])
    assert bench.event().fields["pid"] == 4


def test_only_the_kernel_is_believed(bench: Bench) -> None:
    os.mkfifo(bench.dev / "kmsg")
    collector = bench.collector()
    collector.start()
    with (bench.dev / "kmsg").open("wb") as log:
        for prio in (11, 14, 30, 191):
            log.write(killed(prio, 666, prio))
        log.write(killed(192, 5))
    assert bench.event().fields["pid"] == 5
    assert bench.no_event()
    counts = values(collector)
    assert (counts["ignored_records_total"], counts["oom_kills_total"], counts["records_total"]) == (4, 1, 5)


def test_an_endless_line_is_dropped_in_bounded_memory(bench: Bench) -> None:
    os.mkfifo(bench.dev / "kmsg")
    collector = bench.collector()
    collector.start()
    with (bench.dev / "kmsg").open("wb") as log:
        for _ in range(100):
            log.write(b"x" * 16384)
        log.write(b"\n" + killed(1, 5))
    assert bench.event().fields["pid"] == 5
    assert values(collector)["malformed_records_total"] > 1


def test_counters_begin_at_zero_and_every_metric_is_in_the_table(bench: Bench) -> None:
    os.mkfifo(bench.dev / "kmsg")
    names = "oom_kills segfaults records ignored_records malformed_records overruns lost_records"
    assert values(bench.collector()) == {f"{name}_total": 0.0 for name in names.split()}


def test_absent_then_there_then_dead_then_there_again(bench: Bench, eventually: Eventually) -> None:
    collector = bench.collector()
    collector.start()
    with pytest.raises(NotPresent, match=r"kmsg: does not exist"):
        collector.collect()
    (bench.dev / "kmsg").write_bytes(b"")
    assert values(collector)["records_total"] == 0
    follower = collector._follower
    assert follower is not None
    follower._read = unplugged
    eventually(lambda: follower.failure is not None)
    with pytest.raises(KernelLogError, match=r"kmsg: .*No such device"):
        collector.collect()
    with (bench.dev / "kmsg").open("ab") as log:
        log.write(killed(1, 5))
    assert bench.event().fields["pid"] == 5
    assert values(collector)["oom_kills_total"] == 1


def test_what_is_no_kernel_log(tmp_path: Path) -> None:
    with pytest.raises(NotPresent, match="is another device"):
        open_log(Path("/dev/null"))
    with pytest.raises(NotPresent, match="not the kernel's log"):
        open_log(tmp_path)
    with pytest.raises(NotPresent, match="does not exist"):
        open_log(tmp_path / "kmsg")
    (tmp_path / "kmsg").touch()
    with pytest.raises(NotPresent, match="does not exist"):
        open_log(tmp_path / "kmsg" / "kmsg")
    if os.geteuid() == 0:
        os.mknod(tmp_path / "gone", 0o600 | stat.S_IFCHR, os.makedev(250, 99))
        with pytest.raises(NotPresent, match="no device behind it"):
            open_log(tmp_path / "gone")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be somebody else")
def test_without_permission_it_says_what_is_needed(bench: Bench) -> None:
    (bench.dev / "kmsg").touch(mode=0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(NotPresent, match=r"kmsg: not permitted; needs CAP_SYSLOG, or kernel\.dmesg_restrict=0"):
            bench.collector().collect()
    finally:
        os.seteuid(0)


def test_events_carry_the_kernels_time_while_it_agrees_with_the_clock(bench: Bench) -> None:
    os.mkfifo(bench.dev / "kmsg")
    collector = bench.collector(clock=FakeClock(wall=5000.0, mono=100.0))
    collector.start()
    stamps = (99_750_000, 100_250_000, 98_000_000, 10**19)
    with (bench.dev / "kmsg").open("wb") as log:
        for number, usec in enumerate(stamps):
            log.write(b"3,%d,%d,-;" % (number, usec) + KILLED % number)
    times = [(event.time, event.monotonic) for event in (bench.event() for _ in stamps)]
    assert times == [(4999.75, 99.75), (5000.0, 100.0), (5000.0, 100.0), (5000.0, 100.0)]


def test_a_module_too_many_counts_as_other_and_a_crash_printed_twice_counts_once(bench: Bench) -> None:
    os.mkfifo(bench.dev / "kmsg")
    collector = bench.collector(Roots(dev=bench.dev))
    collector.start()
    with (bench.dev / "kmsg").open("wb") as log:
        for n in range(150):
            log.write(b"6,%d,7,-;a\\x0a[%d]: segfault at 0 ip 0 sp 0 error 4 in m%d.so[1+1]\n" % (2 * n, n, n))
            log.write(b"6,%d,8,-;a\\x0a: potentially unexpected fatal signal 11.\n" % (2 * n + 1))
        log.write(b"6,300,9,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=4, name=a, GPU has fallen off the bus.\n")
    events = [bench.event() for _ in range(151)]
    assert events[0].summary == "a?[0] died of segfault in m0.so"
    fields = {"comm": "a\n", "cause": "segfault", "module": "m0.so", "pid": 0, "address": "0", "ip": "0"}
    assert events[0].fields == fields
    assert events[150].kind == "xid"
    assert events[150].summary == "Xid 79 on GPU 0000:3b:00.0: GPU has fallen off the bus."
    message = "GPU has fallen off the bus."
    assert events[150].fields == {"pci": "0000:3b:00.0", "xid": 79, "message": message, "pid": 4, "process": "a"}
    counts = values(collector)
    assert counts['xids_total{pci="0000:3b:00.0",xid="79"}'] == 1
    assert counts['segfaults_total{module="m98.so"}'] == 1
    assert counts['segfaults_total{module="other"}'] == 51
    assert sum(value for name, value in counts.items() if name.startswith("segfaults_total")) == 150
