import os

import pytest

from collectors.host.hosts import FIXTURES
from oomcast_collectors.host.files import CUT_LINE, Parsed
from oomcast_collectors.host.memory import host_level, parse_low_watermark, parse_meminfo

GIB = 1 << 30


def meminfo(kernel: str) -> dict[str, int]:
    parsed = parse_meminfo((FIXTURES / kernel / "proc/meminfo").read_bytes())
    assert not parsed.malformed
    return parsed.values


def test_every_field_of_a_5_15_host_is_in_bytes() -> None:
    assert meminfo("linux-5.15") == {
        "MemTotal": 2113393620 << 10,
        "MemFree": 1201458200 << 10,
        "MemAvailable": 1512306728 << 10,
        "Active(file)": 89601784 << 10,
        "Inactive(file)": 221918972 << 10,
        "Unevictable": 16793620 << 10,
        "Mlocked": 16 * GIB,
        "SwapTotal": 8388604 << 10,
        "SwapFree": 6291452 << 10,
        "Dirty": 1264 << 10,
        "AnonPages": 87203144 << 10,
        "Shmem": 1908520 << 10,
        "SReclaimable": 12004112 << 10,
        "SUnreclaim": 7096112 << 10,
        "CommitLimit": 796865260 << 10,
        "Committed_AS": 402113484 << 10,
        "HugePages_Total": 2 * GIB,
        "HugePages_Free": 1 * GIB,
        "Hugetlb": 258 * GIB,
    }


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"MemTotal: abc kB\n", "MemTotal"),
        (b"MemTotal: -5 kB\n", "MemTotal"),
        (b"MemTotal: 5\n", "MemTotal"),
        (b"MemTotal: 5 MB\n", "MemTotal"),
        (b"MemTotal: 5.5 kB\n", "MemTotal"),
        (b"MemTotal: 5 kB kB\n", "MemTotal"),
        (b"MemTotal:\n", "MemTotal"),
        (b"MemTotal: \xff\xfe kB\n", "MemTotal"),
        (b"MemTotal: \xc2\xb2 kB\n", "MemTotal"),
        (b"MemTotal: 99999999999999999999 kB\n", "MemTotal"),
        (b"MemTotal: 18446744073709551615 kB\n", "MemTotal"),
        (b"MemTotal: " + b"9" * 900_000 + b" kB\n", "MemTotal"),
        (b"HugePages_Total: 5 kB\nHugepagesize: 2048 kB\n", "HugePages_Total"),
        (b"MemTotal: 500 k", CUT_LINE),
        (b"MemTotal: 50", CUT_LINE),
    ],
)
def test_a_malformed_line_costs_its_field_only(line: bytes, field: str) -> None:
    parsed = parse_meminfo(b"MemFree: 7 kB\n" + line)
    assert parsed == Parsed({"MemFree": 7168}, frozenset({field}))


def test_the_second_line_of_a_field_is_not_believed() -> None:
    assert parse_meminfo(b"MemFree: 7 kB\nMemFree: 8 kB\n") == Parsed({"MemFree": 7168}, frozenset({"MemFree"}))


def test_a_count_of_pages_without_their_size_is_no_number_of_bytes() -> None:
    assert parse_meminfo(b"HugePages_Total: 5\n") == Parsed({}, frozenset())


def test_low_watermark_is_the_sum_over_zones_and_not_of_page_sets() -> None:
    data = (FIXTURES / "linux-5.15/proc/zoneinfo").read_bytes()
    assert parse_low_watermark(data) == 4 + 286501 + 0 + 286912
    data = (FIXTURES / "linux-6.18/proc/zoneinfo").read_bytes()
    assert parse_low_watermark(data) == 63 + 12870 + 8185 + 32 + 0
    assert parse_low_watermark(b"garbage") is None


def test_level_leaves_out_huge_pages_and_adds_swap() -> None:
    level = host_level(meminfo("linux-5.15"), 573417 * 4096, 4 << 20)
    assert level is not None
    pools, swap = 270532608, 8388604
    assert level.used == (2113393620 - pools - 1512306728 + swap - 6291452) << 10
    assert level.capacity == ((2113393620 - pools + swap) << 10) - 573417 * 4096
    assert level.noise == level.capacity / 1000
    assert (level.resource, level.labels, level.within, level.identity) == ("host_memory", (), "", 0)


def test_level_of_a_small_host_has_the_noise_floor_of_its_cpus() -> None:
    level = host_level(meminfo("linux-6.1"), 0, 4 << 20)
    assert level is not None
    assert (level.used, level.capacity, level.noise) == ((995368 - 872276) << 10, 995368 << 10, 4 << 20)


def test_pools_are_taken_from_the_default_size_where_the_kernel_has_no_sum() -> None:
    level = host_level({"MemTotal": 1000, "MemAvailable": 100, "HugePages_Total": 300}, 0, 1)
    assert level is not None
    assert (level.used, level.capacity) == (600, 700)


@pytest.mark.parametrize(
    "fields",
    [
        {"MemTotal": 1000},
        {"MemAvailable": 1000},
        {"MemTotal": 1000, "MemAvailable": 1001},
        {"MemTotal": 1000, "MemAvailable": 100, "Hugetlb": 950},
        {"MemTotal": 1000, "MemAvailable": 100, "SwapTotal": 5, "SwapFree": 6},
        {"MemTotal": 0, "MemAvailable": 0},
    ],
)
def test_no_level_from_missing_or_contradicting_fields(fields: dict[str, int]) -> None:
    assert host_level(fields, 0, 1) is None


def test_real_host_agrees_with_sysconf() -> None:
    with open("/proc/meminfo", "rb") as file:  # noqa: PTH123 - the bytes as the kernel gives them
        parsed = parse_meminfo(file.read())
    assert not parsed.malformed
    assert parsed.values["MemTotal"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert parsed.values["MemAvailable"] <= parsed.values["MemTotal"]
