import logging

import pytest

from collectors.host.hosts import FIXTURES
from oomcast_collectors.host.counters import Counters, parse_pressure, parse_vmstat
from oomcast_collectors.host.files import CUT_LINE, Parsed


def vmstat(kernel: str) -> dict[str, int]:
    parsed = parse_vmstat((FIXTURES / kernel / "proc/vmstat").read_bytes())
    assert not parsed.malformed
    return parsed.values


def test_4_18_has_one_refault_counter_and_it_counts_files() -> None:
    assert vmstat("linux-4.18") == {
        "oom_kill": 5,
        "pgmajfault": 90112,
        "workingset_refault_file": 40112,
        "pgscan_direct": 7001,
        "pgscan_kswapd": 1310990,
        "pgsteal_direct": 6120,
        "pgsteal_kswapd": 1200113,
        "allocstall": 75,
        "pswpin": 0,
        "pswpout": 0,
        "numa_pages_migrated": 0,
    }


def test_5_15_has_refaults_by_kind() -> None:
    found = vmstat("linux-5.15")
    assert (found["workingset_refault_anon"], found["workingset_refault_file"]) == (4410, 991203)
    assert (found["oom_kill"], found["allocstall"], found["numa_pages_migrated"]) == (2, 2000, 4401122)
    assert (found["pswpin"], found["pswpout"]) == (1290, 530011)


def test_6_1_capture() -> None:
    found = vmstat("linux-6.1")
    assert (found["oom_kill"], found["pgmajfault"], found["workingset_refault_file"]) == (6, 33510, 13922)
    assert (found["pgscan_direct"], found["pgsteal_direct"], found["allocstall"]) == (1569, 542, 85)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"oom_kill abc\n", "oom_kill"),
        (b"oom_kill -1\n", "oom_kill"),
        (b"oom_kill\n", "oom_kill"),
        (b"oom_kill  7\n", "oom_kill"),
        (b"oom_kill 18446744073709551616\n", "oom_kill"),
        (b"allocstall_dma x\nallocstall_normal 5\n", "allocstall"),
        (b"allocstall_normal 5\nallocstall_dma x\n", "allocstall"),
        (b"oom_kill 7", CUT_LINE),
    ],
)
def test_a_malformed_line_costs_its_counter_only(line: bytes, field: str) -> None:
    assert parse_vmstat(b"pswpin 3\n" + line) == Parsed({"pswpin": 3}, frozenset({field}))


def test_names_that_only_start_alike_are_others() -> None:
    assert parse_vmstat(b"oom_kill_x 3\npswpin_zero 4\nxoom_kill 5\n oom_kill 6\n") == Parsed({}, frozenset())


def test_pressure_totals_are_microseconds() -> None:
    data = (FIXTURES / "linux-6.1/proc/pressure/memory").read_bytes()
    assert parse_pressure(data) == Parsed({"some": 9461260, "full": 9047635}, frozenset())
    data = (FIXTURES / "linux-6.1/proc/pressure/irq").read_bytes()
    assert parse_pressure(data) == Parsed({"full": 2250041}, frozenset())


@pytest.mark.parametrize(
    ("data", "values", "malformed"),
    [
        (b"", {}, set()),
        (b"\n\n", {}, set()),
        (b"some avg10=0.00 total=\n", {}, {"some"}),
        (b"some avg10=0.00 total=x\nfull total=4\n", {"full": 4}, {"some"}),
        (b"some total=-4\n", {}, {"some"}),
        (b"some avg10=0.00\n", {}, {"some"}),
        (b"some\n", {}, {"some"}),
        (b"some total=1\nsome total=2\n", {"some": 1}, {"some"}),
        (b"\xff\xfe total=4\nmost total=5\n", {}, set()),
        (b"some total=12", {}, {CUT_LINE}),
    ],
)
def test_malformed_pressure(data: bytes, values: dict[str, int], malformed: set[str]) -> None:
    assert parse_pressure(data) == Parsed(values, frozenset(malformed))


def test_a_counter_that_goes_back_loses_its_start_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters(logging.getLogger("host"))
    counters.created = 1000.0
    runs = [counters.vmstat({"oom_kill": kills, "pswpin": 9}) for kills in (5, 7, 3, 4, 1)]
    assert [(run[0].value, run[0].created) for run in runs] == [(5, 1000), (7, 1000), (3, None), (4, None), (1, None)]
    assert {run[1].created for run in runs} == {1000.0}
    assert [r.getMessage() for r in caplog.records] == ["oomcast_host_oom_kills_total went back from 7 to 3: a reset"]
