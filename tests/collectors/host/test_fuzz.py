"""No input makes a parser raise or say a number that a whole line of the input does not say."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.host.hosts import FIXTURES
from oomcast_collectors.host.commandline import names_of
from oomcast_collectors.host.counters import parse_pressure, parse_vmstat
from oomcast_collectors.host.memory import host_level, parse_low_watermark, parse_meminfo
from oomcast_collectors.host.processes import cgroup_components, parse_stat
from oomcast_collectors.host.usage import parse_status
from oomcast_collectors.membership import memory_cgroup, unified_cgroup

# No deadline: the machine may be busy with other things than this example.
fuzz = settings(max_examples=200, deadline=None)


def damaged(sample: bytes) -> st.SearchStrategy[bytes]:
    """The sample cut off, with a piece replaced, or with lines in another order and some twice."""
    lines = sample.splitlines(keepends=True)
    at = st.integers(0, len(sample))
    return st.one_of(
        st.binary(max_size=300),
        at.map(lambda end: sample[:end]),
        st.builds(
            lambda i, junk, n: sample[:i] + junk + sample[i + n :], at, st.binary(max_size=20), st.integers(0, 40)
        ),
        st.lists(st.sampled_from(lines), max_size=80).map(b"".join),
    )


def fixture(path: str) -> bytes:
    return (FIXTURES / path).read_bytes()


STATUS = Path("/proc/self/status").read_bytes()
STAT = Path("/proc/self/stat").read_bytes()
CGROUP = b"9:name=systemd:/a/b.service\n4:cpu,memory:/m:x\n0::/u\n"


def said(data: bytes, pattern: str) -> set[int]:
    return {int(n) for n in re.findall(pattern.encode(), data, re.MULTILINE)}


@fuzz
@given(damaged(fixture("linux-5.15/proc/meminfo")))
def test_meminfo(data: bytes) -> None:
    values, _ = parse_meminfo(data)
    pages = {"HugePages_Total", "HugePages_Free"}
    for name, value in values.items():
        if name not in pages:
            assert value >> 10 in said(data, rf"^{re.escape(name)}:\s*([0-9]+)\s+kB\s*\n")
    level = host_level(values, 0, 1)
    assert level is None or (level.used >= 0 and level.capacity > 0)


@fuzz
@given(damaged(fixture("linux-5.15/proc/vmstat")))
def test_vmstat(data: bytes) -> None:
    values, _ = parse_vmstat(data)
    for name, value in values.items():
        if name == "allocstall":
            assert value <= sum(map(int, re.findall(rb"^allocstall_\w+ ([0-9]+)\n", data, re.MULTILINE)))
        else:
            source = "workingset_refault(?:_file)?" if name == "workingset_refault_file" else name
            assert value in said(data, rf"^{source} ([0-9]+)\n")


@fuzz
@given(damaged(fixture("linux-5.15/proc/pressure/memory")))
def test_pressure(data: bytes) -> None:
    for kind, value in parse_pressure(data).values.items():
        assert value in said(data, rf"{kind}\b[^\n]*total=([0-9]+)")


@fuzz
@given(damaged(STATUS))
def test_status(data: bytes) -> None:
    for name, value in parse_status(data).values.items():
        assert value >> 10 in said(data, rf"^{name}:\s*([0-9]+)\s+kB\s*\n")


@fuzz
@given(damaged(fixture("linux-5.15/proc/zoneinfo")))
def test_zoneinfo(data: bytes) -> None:
    low = parse_low_watermark(data)
    assert low is None or low == sum(map(int, re.findall(rb"^ +low +([0-9]{1,15})$", data, re.MULTILINE)))


@fuzz
@given(st.one_of(damaged(STAT), st.binary(max_size=16).map(lambda comm: STAT.replace(b"(", b"(" + comm))))
def test_stat(data: bytes) -> None:
    stat = parse_stat(data)
    assert stat is None or (str(stat.start_time).encode() in data and stat.comm.encode("utf-8"))


@fuzz
@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(st.sampled_from([b"python", b"-m", b"-Xu", b"\0", b"-", b"a/b.py"])).map(b"\0".join),
    )
)
def test_commandline(data: bytes) -> None:
    for name in names_of(data):
        assert 0 < len(name.encode("utf-8")) <= 255 * 4


@fuzz
@given(damaged(CGROUP))
def test_cgroup(data: bytes) -> None:
    text = data.decode("utf-8", "backslashreplace")
    assert memory_cgroup(data) in text
    assert unified_cgroup(data) in text
    assert all(name in text for name in cgroup_components(data))
