"""Whatever the kernel prints, in whatever order: no line stops the reading, and every event keeps its contract."""

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.kernel_log.support import FIXTURES
from fakes import FakeClock
from oomcast.contract import Event
from oomcast_collectors.kernel_log.interpret import Interpreter
from oomcast_collectors.kernel_log.record import Record, parse_record

BY_HAND = (
    b"Task in /b/a killed as a result of limit of /b",
    b"Memory cgroup out of memory: Kill process 7 (hog) score 900 or sacrifice child",
    b"Killed process 8 (\\x5c\\xff\\x1b[31m) total-vm:1kB, anon-rss:1kB, file-rss:0kB",
    b"a: potentially unexpected fatal signal 11.",
    b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=\\xe2\\x80\\xa8, GPU has fallen off the bus.",
)
CAPTURED = [
    record.body
    for path in sorted(FIXTURES.rglob("*.kmsg"))
    for line in path.read_bytes().splitlines()
    if (record := parse_record(line)) is not None
]
BODIES = st.one_of(st.sampled_from([*BY_HAND, *CAPTURED]), st.binary(max_size=100))
CUT = st.builds(lambda body, at, other: body[: at % (len(body) + 1)] + other, BODIES, st.integers(0, 200), BODIES)
REQUIRED: dict[str, dict[str, type]] = {
    "oom_kill": {"pid": int, "comm": str, "cgroup": str, "limit_cgroup": str, "constraint": str},
    "oom_kill_repeated": {"pid": int, "comm": str, "cgroup": str},
    "segfault": {"comm": str, "cause": str, "module": str},
    "xid": {"pci": str, "xid": int, "message": str},
}


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.one_of(BODIES, CUT), st.integers(0, 2**64)), max_size=40))
def test_any_lines_in_any_order(lines: list[tuple[bytes, int]]) -> None:
    events: list[Event] = []
    interpreter = Interpreter(FakeClock(), events.append, lambda pid, comm: "")
    for number, (body, usec) in enumerate(lines):
        interpreter.record(Record(0, number, usec, body))
    for event in events:
        assert event.summary.isprintable()
        event.summary.encode()
        for name, kind in REQUIRED[event.kind].items():
            assert isinstance(event.fields[name], kind)
        for value in event.fields.values():
            str(value).encode()
    counts = [sample.value for sample in interpreter.samples()]
    assert sum(count for count in counts if isinstance(count, int | float)) >= len(events)


def test_a_name_with_escapes_reaches_no_terminal() -> None:
    events: list[Event] = []
    interpreter = Interpreter(FakeClock(), events.append, lambda pid, comm: "/x")
    interpreter.record(Record(0, 1, 1_000_000_000, BY_HAND[2]))
    (event,) = events
    assert event.summary == "OOM kill of \\\\xff?[31m[8] in /x"
    assert event.fields == {
        "pid": 8,
        "comm": "\\\\xff\x1b[31m",
        "cgroup": "/x",
        "limit_cgroup": "",
        "constraint": "",
        "anon_bytes": 1024,
        "file_bytes": 0,
    }
    assert (event.time, event.monotonic) == (1_700_000_000.0, 1000.0)
