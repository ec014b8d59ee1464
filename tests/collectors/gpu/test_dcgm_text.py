"""Pages of a dcgm-exporter, of many releases and broken ones. tests/fixtures/dcgm/README.md says what they are."""

import time
import tracemalloc
from pathlib import Path
from typing import get_args

import hypothesis
import pytest
from hypothesis import strategies as st

from oomcast_collectors.gpu import dcgm_quantities
from oomcast_collectors.gpu.dcgm_quantities import DcgmMemory
from oomcast_collectors.gpu.dcgm_text import DcgmGpu, DcgmInstance, Page, is_page, parse
from oomcast_collectors.gpu.driver import Field

PAGES = Path(__file__).parents[2] / "fixtures" / "dcgm"
FIRST = "GPU-00000000-6b1f-4c51-9d0e-000000000000"
SECOND = "GPU-11111111-6b1f-4c51-9d0e-000000000001"
MIB = 1 << 20
NOTHING = DcgmMemory(None, None, None, None, None)


def read(name: str) -> tuple[DcgmGpu, ...]:
    body = (PAGES / f"{name}.prom").read_bytes()
    page = parse(body)
    assert is_page(body)
    assert page.malformed == 0
    return page.gpus


def one(*lines: str) -> DcgmGpu:
    page = parse("".join(f"{line}\n" for line in lines).encode())
    assert page.malformed == 0
    (gpu,) = page.gpus
    return gpu


def line(name: str, value: object, labels: str = "") -> str:
    return f'DCGM_FI_DEV_{name}{{gpu="0",UUID="{FIRST}"{labels}}} {value}'


def test_the_default_counters() -> None:
    first, second = read("default-4.8")
    assert first == DcgmGpu(
        uuid=FIRST,
        index=0,
        name="NVIDIA H200",
        pci="0000:3b:00.0",
        driver="580.95.05",
        memory=DcgmMemory(130000 * MIB, 12770 * MIB, 1001 * MIB, 143771 * MIB, 130000 / 142770),
        gpu_utilization=0.97,
        copy_utilization=0.41,
        xid=0,
        fields={
            "power_watts": 612.345,
            "energy_joules": 98765432.101,
            "temperature_celsius": 64,
            "memory_temperature_celsius": 58,
            "sm_clock_hertz": 1980e6,
            "memory_clock_hertz": 3201e6,
            "remapped_rows_correctable": 4,
            "remapped_rows_uncorrectable": 2,
            "remap_failed": 1,
        },
        instances=(),
        blank=frozenset(),
        invalid=frozenset(),
    )
    assert (second.uuid, second.index, second.pci, second.xid) == (SECOND, 1, "0000:d8:00.0", 13)
    assert second.memory.used == MIB
    assert isinstance(second.memory.used, int)


def test_a_list_of_counters_of_ones_own() -> None:
    (gpu,) = read("csv-4.8")
    # FB_USED_PERCENT has meant two things: the ratio is that of used and free.
    assert gpu.memory == DcgmMemory(130000 * MIB, 12770 * MIB, 1001 * MIB, 143771 * MIB, 130000 / 142770)
    assert gpu.fields == {
        "power_limit_watts": 650,
        "temperature_celsius": 64,
        "ecc_corrected": 21,
        "ecc_uncorrected": 22,
        "remap_pending": 1,
        "remap_failed": 0,
        "recovery_action": 3,
        "pcie_tx_bytes": 123456789012345,
        "pcie_rx_bytes": 987654321098765,
    }


def test_renamed_fields() -> None:
    (gpu,) = read("renamed-4.7")
    assert gpu.driver == "590.44.01"
    assert gpu.memory == DcgmMemory(136314880001, 13390315521, 1049624576, 150754820098, 136314880001 / 149705195522)
    assert (gpu.gpu_utilization, gpu.copy_utilization, gpu.xid) == (0.97, 0.41, 13)
    assert gpu.fields == {
        "power_watts": 612.345,
        "power_limit_watts": 650,
        "energy_joules": 98765432,
        "temperature_celsius": 64,
        "memory_temperature_celsius": 58,
        "sm_clock_hertz": 1980e6,
        "memory_clock_hertz": 3201e6,
        "remapped_rows_correctable": 4,
        "remapped_rows_uncorrectable": 2,
        "remap_failed": 1,
        "recovery_action": 3,
    }


def test_the_names_of_1x() -> None:
    (gpu,) = read("names-1.x")
    assert (gpu.uuid, gpu.name, gpu.pci, gpu.driver) == (FIRST, "", "", "")
    assert gpu.memory == DcgmMemory(2160 * MIB, 14000 * MIB, None, None, 2160 / 16160)
    assert (gpu.gpu_utilization, gpu.copy_utilization, gpu.xid) == (0.44, 0.19, 31)
    assert gpu.fields == {
        "power_watts": 302.206,
        "energy_joules": 4335301.032,
        "temperature_celsius": 55,
        "memory_temperature_celsius": 54,
        "sm_clock_hertz": 1530e6,
        "memory_clock_hertz": 877e6,
        "ecc_corrected": 25,
        "ecc_uncorrected": 26,
    }


def test_every_metric_is_read_by_some_page() -> None:
    text = "".join(path.read_text() for path in PAGES.glob("*.prom"))
    unread = {name for name in dcgm_quantities.ROWS if name + "{" not in text}
    assert unread == {"DCGM_FI_DEV_GPU_UTIL_RATIO_V2"}
    quantities = {row.quantity for row in dcgm_quantities.ROWS.values()}
    assert set(get_args(Field)) - quantities == {"nvlink_tx_bytes", "nvlink_rx_bytes"}


def test_mig_instances_are_not_their_gpu() -> None:
    whole, other = read("mig-4.2")
    assert (whole.memory, whole.gpu_utilization, dict(whole.fields)) == (NOTHING, None, {})
    assert (whole.uuid, whole.name, whole.driver) == (FIRST, "NVIDIA H200", "580.95.05")
    assert whole.instances == (
        DcgmInstance(2, "4g.71gb", DcgmMemory(12 * MIB, 70000 * MIB, 512 * MIB, 70524 * MIB, 12 / 70012)),
        DcgmInstance(9, "1g.18gb", DcgmMemory(5000 * MIB, 11000 * MIB, 384 * MIB, 16384 * MIB, 5000 / 16000)),
    )
    assert (other.uuid, other.memory.used, other.instances) == (SECOND, MIB, ())


def test_impossible_readings_of_an_instance_are_told_of_its_gpu() -> None:
    gpu = one(line("FB_USED", -1, ',GPU_I_ID="2",GPU_I_PROFILE="4g.71gb"'))
    assert gpu.invalid == {"used"}
    assert gpu.instances == (DcgmInstance(2, "4g.71gb", NOTHING),)


def test_a_gpu_that_pods_share_is_one() -> None:
    (gpu,) = read("pods-4.4")
    assert (gpu.memory.used, gpu.memory.free, gpu.gpu_utilization) == (130000 * MIB, 12770 * MIB, 0.97)


def test_a_pods_part_is_not_taken_for_the_gpu() -> None:
    (gpu,) = read("pods-4.8")
    assert (gpu.memory.used, gpu.memory.free, gpu.gpu_utilization) == (130000 * MIB, 12770 * MIB, 0.6)
    assert gpu.invalid == {"used"}
    parts = (line("FB_USED", 7, ',pod="a"'), line("FB_USED", 5), line("FB_USED", 9, ',pod_name="b"'))
    assert one(*parts).memory.used == one(*parts[::-1]).memory.used == 5 * MIB


def test_codes_for_no_value_and_impossible_readings_are_dropped_and_told_apart() -> None:
    first, second = read("blank-3.1")
    assert first.memory == DcgmMemory(130000 * MIB, None, None, None, None)
    assert (first.gpu_utilization, first.copy_utilization, first.fields) == (None, None, {})
    assert first.blank == {
        *("sm_clock_hertz", "memory_clock_hertz", "memory_temperature_celsius", "temperature_celsius"),
        *("power_watts", "power_limit_watts", "energy_joules", "gpu", "copy", "free"),
    }
    assert first.invalid == frozenset()
    assert second.memory == DcgmMemory(None, 12770 * MIB, None, None, None)
    assert second.fields == {
        "sm_clock_hertz": 1980e6,
        "memory_clock_hertz": 3201e6,
        "memory_temperature_celsius": 58,
        "power_limit_watts": 650,
    }
    assert second.invalid == {"temperature_celsius", "power_watts", "energy_joules", "gpu", "copy", "used"}
    assert second.blank == frozenset()


def test_a_blank_series_beside_a_good_one_is_no_blank() -> None:
    gpu = one(line("FB_USED", 5), line("FB_USED_BYTES", 9223372036854775794))
    assert (gpu.memory.used, gpu.blank) == (5 * MIB, frozenset())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("GPU_UTIL_RATIO", "1", 0.01),  # of 4.6: percent
        ("GPU_UTIL_RATIO", "97", 0.97),
        ("GPU_UTIL_RATIO", "1.000000", 1.0),  # of 4.7
        ("GPU_UTIL_RATIO_V2", "0.250000", 0.25),
    ],
)
def test_the_utilisation_whose_name_changed_its_unit(name: str, value: str, expected: float) -> None:
    assert one(line(name, value)).gpu_utilization == expected


def test_the_requested_power_limit_stands_in_for_the_enforced_one() -> None:
    assert one(line("POWER_MGMT_LIMIT", 700)).fields == {"power_limit_watts": 700}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((line("FB_USED", 3), line("FB_FREE", 0)), DcgmMemory(3 * MIB, 0, None, None, 1.0)),
        ((line("FB_USED", 0), line("FB_FREE", 0)), DcgmMemory(0, 0, None, None, None)),
        ((line("FB_USED_RATIO", "0.5"),), DcgmMemory(None, None, None, None, 0.5)),
        ((line("FB_USED_PERCENT", "0.5"), line("FB_USED", 1)), DcgmMemory(MIB, None, None, None, None)),
        # Parts that contradict the whole are left as they are: whoever uses them checks sums anyway.
        (
            (line("FB_USED", 3), line("FB_FREE", 3), line("FB_TOTAL", 5)),
            DcgmMemory(3 * MIB, 3 * MIB, None, 5 * MIB, 0.5),
        ),
        (
            (line("FB_USED", 3), line("FB_FREE", 3), line("FB_RESERVED", 1), line("FB_TOTAL", 8)),
            DcgmMemory(3 * MIB, 3 * MIB, MIB, 8 * MIB, 0.5),
        ),
    ],
)
def test_what_follows_from_the_parts(lines: tuple[str, ...], expected: DcgmMemory) -> None:
    assert one(*lines).memory == expected


def test_labels_in_any_order_with_spaces_and_escapes() -> None:
    labels = f'modelName="a \\"}} 5, b" , UUID="{FIRST}", gpu="12", pci_bus_id = "0000AF:00.0",'
    gpu = one(f"DCGM_FI_DEV_FB_USED {{ {labels} }} 5 1700000000000")
    assert (gpu.index, gpu.memory.used, gpu.pci) == (12, 5 * MIB, "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("3B:00.0", ""),
        ("../../etc", ""),
    ],
)
def test_pci_addresses_are_those_of_sysfs(given: str, expected: str) -> None:
    assert one(line("FB_USED", 5, f',pci_bus_id="{given}"')).pci == expected


def test_a_pods_own_labels_do_not_replace_the_exporters() -> None:
    gpu = one(line("FB_USED", 5, f',gpu="7",UUID="{SECOND}"'))
    assert (gpu.uuid, gpu.index) == (FIRST, 0)


@pytest.mark.parametrize(
    "text",
    [
        'DCGM_FI_DEV_FB_USED{cpu="0",Hostname="a"} 5\n',
        'DCGM_FI_DEV_FB_USED{nvlink="0",gpu="0",gpu_uuid="GPU-1"} 5\n',
        f'DCGM_FI_DEV_FB_USED{{nvlink="0",gpu="0",UUID="{FIRST}"}} 5\n',
        f'DCGM_FI_DEV_ENC_UTIL{{gpu="0",UUID="{FIRST}"}} 5\n',
        "# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).\n",
        "go_goroutines 7\n\n",
    ],
)
def test_what_is_not_about_a_gpu_is_passed_over(text: str) -> None:
    assert parse(text.encode()) == Page((), 0, "")


@pytest.mark.parametrize(
    "bad",
    [
        b"DCGM_FI_DEV_FB_USED\n",
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2"}\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2"} five\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2"} 5 6 7\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2" oops} 5\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-2",x=y} 5\n',
        b'DCGM_FI_DEV_FB_USED{gpu="",UUID="GPU-2"} 5\n',
        b'DCGM_FI_DEV_FB_USED{UUID="GPU-2"} 5\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="evil\\nuuid"} 5\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-' + b"a" * 100 + b'"} 5\n',
        b'DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-\xff"} 5\n',
        b'DCGM_FI_DEV_FB_USED{gpu="0",UUID="' + FIRST.encode() + b'",GPU_I_ID="x",GPU_I_PROFILE="1g"} 5\n',
    ],
)
def test_a_bad_line_costs_that_line(bad: bytes) -> None:
    good = f"{line('FB_USED', 5)}\n".encode()
    page = parse(bad + good)
    assert (page.malformed, page.example[:19]) == (1, "DCGM_FI_DEV_FB_USED")
    assert [(gpu.uuid, gpu.memory.used) for gpu in page.gpus] == [(FIRST, 5 * MIB)]


def test_the_example_of_a_bad_line() -> None:
    unreadable, unfit = 'DCGM_FI_DEV_FB_USED{UUID="GPU-1" 5', 'DCGM_FI_DEV_FB_USED{gpu="x",UUID="GPU-2"} 5.0'
    assert parse(f"{unfit}\n".encode())[1:] == (1, unfit)
    assert parse(f"{unfit}\n{unreadable}\n".encode())[1:] == (2, unreadable)


def test_what_is_no_utf_8_costs_nothing() -> None:
    page = parse(line("FB_USED", 5, ',modelName="NVIDIA \xff"').encode("latin-1") + b"\n")
    assert [gpu.name for gpu in page.gpus] == ["NVIDIA \\xff"]


def test_a_last_line_without_its_newline_may_be_cut() -> None:
    page = parse(f"{line('FB_FREE', 5)}\n{line('FB_USED', 123)}".encode())
    assert page.malformed == 1
    assert page.gpus[0].memory == DcgmMemory(None, 5 * MIB, None, None, None)


def test_more_gpus_than_a_node_has_are_not_kept() -> None:
    page = parse(b"".join(b'DCGM_FI_DEV_FB_USED{gpu="%d",UUID="GPU-%d"} 5\n' % (n, n) for n in range(5000)))
    assert (len(page.gpus), page.malformed) == (64, 5000 - 64)


def test_many_pods_take_no_memory() -> None:
    body = "".join(line("FB_USED", 5, f',pod="{n}"') + "\n" for n in range(30000)).encode()
    tracemalloc.start()
    try:
        assert parse(body).gpus[0].memory.used == 5 * MIB
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


@hypothesis.given(st.binary(max_size=300))
def test_any_bytes_are_read(noise: bytes) -> None:
    good = line("FB_USED", 5).encode()
    page = parse(b"DCGM_FI_DEV_FB_USED{" + noise + b"\n" + good + b"\n")
    assert [gpu.memory.used for gpu in page.gpus if gpu.uuid == FIRST] == [5 * MIB]


@pytest.mark.parametrize("unit", [b"\n", b'\\"', b'a="', b'a="b",', b"{", b"DCGM_FI_DEV_FB_USED{\n"])
def test_huge_lines_and_many_lines_take_time_in_proportion(unit: bytes) -> None:
    body = b'DCGM_FI_DEV_FB_USED{gpu="0",' + unit * ((1 << 20) // len(unit)) + b"} 5\n"
    began = time.process_time()
    parse(body)
    assert time.process_time() - began < 3
