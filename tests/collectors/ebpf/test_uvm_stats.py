"""The driver's statistics. The text is in the format of uvm_gpu.c of NVIDIA's open kernel modules, with made-up
numbers: the driver tells them only when it was loaded with uvm_enable_debug_procfs=1."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.cuda.unified_memory import Driver
from oomcast_collectors.ebpf.child.cuda.uvm_stats import parse_uvm_stats, uuid_of

TEXT = """\
replayable_faults      446
duplicates             3
faults_by_access_type:
  prefetch             6
  read                 40
  write                400
  atomic               0
migrations:
  num_pages_in         1024 (4 MB)
  num_pages_out        512 (2 MB)
replays:
  start                22
  start_ack_all        0
non_replayable_faults  7
faults_by_access_type:
  read                 2
  write                5
  atomic               0
faults_by_addressing:
  virtual              7
  physical             0
migrations:
  num_pages_in         16 (0 MB)
  num_pages_out        0 (0 MB)
"""
FAULTS = {"prefetch": 6, "read": 42, "write": 405, "atomic": 0}
PAGES = {"in": 1040, "out": 512}
UUID = "GPU-d9b28d2d-828e-cae5-626b-dc354d9af00f"


def test_both_kinds_of_faults_are_added_up() -> None:
    stats = parse_uvm_stats(TEXT)
    assert (stats.faults, stats.pages) == (FAULTS, PAGES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "faults_by_access_type:\n  read  -1\n  write  12x\n  atomic  " + "9" * 5000 + "\n",
        "faults_by_access_type:\n  hammer  12\n",
        "  read  12\n",
        "replays:\n  read  12\n  num_pages_in  7\n",
        "faults_by_access_type:\n  read  12",
    ],
)
def test_what_cannot_be_read_is_left_out(text: str) -> None:
    stats = parse_uvm_stats(text)
    assert (stats.faults, stats.pages) == ({}, {})


@given(st.text())
def test_any_text(text: str) -> None:
    stats = parse_uvm_stats(text)
    assert all(value >= 0 for value in [*stats.faults.values(), *stats.pages.values()])


@given(st.integers(0, len(TEXT)))
def test_a_text_that_is_cut_off_has_no_half_number(length: int) -> None:
    stats = parse_uvm_stats(TEXT[:length])
    assert stats.faults.get("write", 0) in (0, 400, 405)
    assert stats.pages.get("in", 0) in (0, 1024, 1040)


@pytest.mark.parametrize(
    ("folder", "uuid"),
    [
        (UUID, UUID),
        (f"UVM-{UUID}", UUID),
        ("GI-d9b28d2d-828e-cae5-626b-dc354d9af00f", None),
        ("1", None),
        ("GPU-..", None),
        (f"{UUID}\n", None),
    ],
)
def test_folders(folder: str, uuid: str | None) -> None:
    assert uuid_of(folder) == uuid


def tell(proc: Path, text: str, folder: str = f"UVM-{UUID}") -> Path:
    home = proc / "driver/nvidia-uvm/gpus" / folder
    home.mkdir(parents=True, exist_ok=True)
    (home / "fault_stats").write_text(text)
    return home


def told(driver: Driver) -> dict[str, float]:
    """By the label after the GPU's."""
    driver.read()
    assert {labels[0] for _, labels in driver.totals} <= {UUID}
    return {labels[1]: value for (_, labels), value in driver.totals.items()}


def test_without_the_driver_there_is_nothing(tmp_path: Path) -> None:
    assert told(Driver(tmp_path)) == {}


def test_counted_from_the_first_look(tmp_path: Path) -> None:
    tell(tmp_path, TEXT)
    tell(tmp_path, TEXT, "not-a-gpu")
    driver = Driver(tmp_path)
    assert told(driver) == dict.fromkeys([*FAULTS, *PAGES], 0)
    tell(tmp_path, TEXT.replace("  read                 40", "  read                 45"))
    assert told(driver) == {**dict.fromkeys([*FAULTS, *PAGES], 0), "read": 5}
    names = {metric for metric, _ in driver.totals}
    assert names == {metrics.UVM_FAULTS.name, metrics.UVM_PAGES.name}


def test_the_driver_forgets_a_gpu_that_nobody_uses(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    home = tell(tmp_path, TEXT)
    assert told(driver) == {**FAULTS, **PAGES}
    (home / "fault_stats").unlink()
    home.rmdir()
    assert told(driver) == {**FAULTS, **PAGES}
    tell(tmp_path, TEXT)
    assert told(driver) == {key: 2 * value for key, value in {**FAULTS, **PAGES}.items()}


def test_one_that_began_anew_between_two_looks(tmp_path: Path) -> None:
    tell(tmp_path, TEXT)
    driver = Driver(tmp_path)
    tell(tmp_path, "faults_by_access_type:\n  read                 4\n")
    assert told(driver)["read"] == 4


def test_a_file_that_cannot_be_read_for_once_counts_nothing_twice(tmp_path: Path) -> None:
    home = tell(tmp_path, TEXT)
    driver = Driver(tmp_path)
    for text in (TEXT[:90], ""):
        tell(tmp_path, text)
        assert set(told(driver).values()) == {0}
    (home / "fault_stats").unlink()
    assert set(told(driver).values()) == {0}
    tell(tmp_path, TEXT)
    assert set(told(driver).values()) == {0}
