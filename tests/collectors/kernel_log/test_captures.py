"""What a real kernel printed, through the whole collector: a new capture is a new row."""

import os
from pathlib import Path

import pytest

from collectors.kernel_log.support import FIXTURES, Bench, values
from oomcast.contract import Event
from oomcast_collectors.kernel_log import KernelLogCollector

KINDS = sorted(str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*.kmsg"))
Row = tuple[str | int, ...]

KILLS: dict[str, list[Row]] = {
    # pid, comm, cgroup, limit_cgroup, constraint, anon, file, shmem (bytes), uid, oom_score_adj
    "6.1/oom-climb-oom.kmsg": [(121, "hog", "/climb-oom", "/climb-oom", "memcg", 66695168, 4096, 0, 0, 0)],
    "6.1/oom-climb-swap-oom.kmsg": [
        (124, "hog", "/climb-swap-oom", "/climb-swap-oom", "memcg", 65708032, 0, 0, 0, 0),
    ],
    "6.1/oom-nested-child-view.kmsg": [
        (129, "hog", "/nested-parent/child", "/nested-parent", "memcg", 66678784, 655360, 0, 0, 0),
    ],
    "6.1/oom-oom-group.kmsg": [
        (127, "hog", "/oom-group", "/oom-group", "memcg", 45568000, 45056, 0, 0, 0),
        (126, "hog", "/oom-group", "/oom-group", "memcg", 20983808, 45056, 0, 0, 0),
    ],
    "6.18/oom-v1.kmsg": [(14871, "hog", "/vmlab_14870", "/vmlab_14870", "memcg", 66846720, 1425408, 0, 0, 0)],
}

CRASHES: dict[str, Row] = {
    # pid, comm, cause, module, address
    "6.1/segv-exec_heap.kmsg": (142, "segv_kinds", "segfault", "", "55e12696e2a0"),
    "6.1/segv-exec_null.kmsg": (140, "segv_kinds", "segfault", "segv_kinds", "0"),
    "6.1/segv-ill.kmsg": (152, "segv_kinds", "invalid opcode", "segv_kinds", ""),
    "6.1/segv-noncanon.kmsg": (138, "segv_kinds", "general protection fault", "segv_kinds", ""),
    "6.1/segv-null_read.kmsg": (132, "segv_kinds", "segfault", "segv_kinds", "0"),
    "6.1/segv-null_write.kmsg": (134, "segv_kinds", "segfault", "segv_kinds", "8"),
    "6.1/segv-ro_write.kmsg": (146, "segv_kinds", "segfault", "segv_kinds", "55ea17897073"),
    "6.1/segv-thread.kmsg": (159, "tokio-runtime-w", "segfault", "segv_kinds", "0"),
    "6.1/segv-wild_write.kmsg": (136, "segv_kinds", "segfault", "segv_kinds", "deadbeef0"),
    "6.18/segv-exec_null.kmsg": (14629, "segv_kinds", "segfault", "", "0"),
    "6.18/segv-ill.kmsg": (14658, "segv_kinds", "invalid opcode", "segv_kinds", ""),
    "6.18/segv-noncanon.kmsg": (14626, "segv_kinds", "general protection fault", "segv_kinds", ""),
    "6.18/segv-null_read.kmsg": (14589, "segv_kinds", "segfault", "segv_kinds", "0"),
    "6.18/segv-null_write.kmsg": (14600, "segv_kinds", "segfault", "segv_kinds", "8"),
    "6.18/segv-ro_write.kmsg": (14648, "segv_kinds", "segfault", "segv_kinds", "559b905bf073"),
    "6.18/segv-stack_overflow.kmsg": (14636, "segv_kinds", "segfault", "segv_kinds", "7ffd26cc7fcc"),
    "6.18/segv-thread.kmsg": (14672, "tokio-runtime-w", "segfault", "segv_kinds", "0"),
    "6.18/segv-wild_write.kmsg": (14605, "segv_kinds", "segfault", "segv_kinds", "deadbeef0"),
}

END = b"6,999999,1,-;NVRM: Xid (PCI:0000:00:00): 0, the end of this capture\n"


def replay(bench: Bench, name: str) -> tuple[KernelLogCollector, list[Event]]:
    """The collector after this capture, and its events."""
    fifo = bench.dev / "kmsg"
    os.mkfifo(fifo)
    collector = bench.collector()
    collector.start()
    with fifo.open("wb") as log:
        log.write((FIXTURES / name).read_bytes() + END)
    events = []
    while (event := bench.event()).kind != "xid":
        events.append(event)
    return collector, events


def kill_row(event: Event) -> Row:
    assert event.kind == "oom_kill"
    names = "pid comm cgroup limit_cgroup constraint anon_bytes file_bytes shmem_bytes uid oom_score_adj"
    return tuple(as_field(event, name) for name in names.split())


def as_field(event: Event, name: str) -> str | int:
    value = event.fields.get(name, "")
    assert isinstance(value, str | int)
    return value


@pytest.mark.parametrize("name", KINDS)
def test_capture(bench: Bench, name: str) -> None:
    collector, events = replay(bench, name)
    counts = values(collector)
    if name in KILLS:
        kills = [event for event in events if event.kind == "oom_kill"]
        assert [kill_row(event) for event in kills] == KILLS[name]
        assert counts["oom_kills_total"] == len(events)
        # This kernel printed the group's first victim twice; its own counters say three, too.
        repeated = [event.fields for event in events if event not in kills]
        assert repeated == ([{"pid": 127, "comm": "hog", "cgroup": "/oom-group"}] if "group" in name else [])
    elif name in CRASHES:
        (event,) = events
        assert event.kind == "segfault"
        row = tuple(as_field(event, field) for field in ("pid", "comm", "cause", "module", "address"))
        assert row == CRASHES[name]
        module = f'{{module="{row[3]}"}}' if row[3] else ""
        assert counts[f"segfaults_total{module}"] == 1
    else:
        assert (FIXTURES / name).read_bytes() == b""
        assert events == []
    assert counts["records_total"] == (FIXTURES / name).read_bytes().count(b"\n") + 1
    assert counts["malformed_records_total"] == counts["ignored_records_total"] == counts["overruns_total"] == 0


def test_every_row_has_its_capture() -> None:
    assert {*KILLS, *CRASHES} <= set(KINDS)
    assert Path(FIXTURES, "README.md").exists()
