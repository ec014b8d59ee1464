"""The stand-ins for CUDA's libraries, and the program that calls them, without a tracer."""

import ctypes
from typing import Any

import pytest

from ebpf_lab.lab import Target, build
from requires import needs

pytestmark = needs("cc")

RACES = {
    "unordered",
    "event_too_early",
    "wrong_stream_sync",
    "one_byte",
    "default_stream_non_blocking",
    "kernel_elsewhere",
    "default_stream_per_thread",
    "rows",
}
ORDERED = {
    "event",
    "event_chain",
    "event_sync",
    "stream_sync",
    "context_sync",
    "disjoint",
    "same_stream",
    "memset_disjoint",
    "default_stream",
    "default_stream_after",
    "reads",
    "kernel_in_default_stream",
    "configured_kernel_in_default_stream",
    "captured",
    "columns",
}
PUSH = b"\x55"
ENDBR64 = b"\xf3\x0f\x1e\xfa"


def phases(target: Target) -> dict[str, dict[str, Any]]:
    said: dict[str, dict[str, Any]] = {}
    while "closed" not in said:
        one = target.step()
        said[one["phase"]] = one
    return said


def test_all_phases() -> None:
    with Target(build("cuda")) as target:
        said = phases(target)
    memory = {name: said[name] for name in ("device", "async", "managed", "host", "runtime")}
    assert {name: (one["allocs"], one["frees"], one["failures"]) for name, one in memory.items()} == {
        "device": (100, 40, 2),
        "async": (20, 15, 1),
        "managed": (2, 1, 1),
        "host": (2, 1, 1),
        "runtime": (4, 3, 1),
    }
    assert said["device"]["bytes"] == sum((1 << 20) + i for i in range(100))
    assert said["managed"]["prefetches"] == {"calls": 3, "bytes": 6 << 20}
    assert {name for name, one in said.items() if one.get("conflicts")} == RACES
    assert {name for name, one in said.items() if one.get("conflicts") == 0} == ORDERED
    addresses = {one["address"] for one in said.values() if "address" in one}
    assert len(addresses) == len(RACES | ORDERED)


def test_device_memory_has_a_limit() -> None:
    with Target(build("cuda"), environ={"FAKE_CUDA_MEMORY": str(64 << 20)}) as target:
        target.step()
        said = target.step()
    assert (said["allocs"], said["failures"]) == (63, 100 - 63 + 2)


@pytest.mark.parametrize(
    ("library", "functions"),
    [
        ("libcuda.so.1", ["cuInit", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoDAsync_v2", "cuStreamWaitEvent"]),
        ("libcudart.so.12", ["cudaMalloc", "cudaFree", "cudaFreeAsync"]),
    ],
)
def test_functions_begin_as_a_drivers_do(library: str, functions: list[str]) -> None:
    loaded = ctypes.CDLL(str(build(library)))
    for name in functions:
        address = ctypes.cast(loaded[name], ctypes.c_void_p).value
        assert address is not None
        assert ctypes.string_at(address, 5).removeprefix(ENDBR64).startswith(PUSH), name


def test_calls_are_checked() -> None:
    driver = ctypes.CDLL(str(build("libcuda.so.1")))
    block, context = ctypes.c_ulonglong(), ctypes.c_void_p()
    size = ctypes.c_size_t(4096)
    # Not in the order of their use, in a process where nobody has called cuInit yet.
    assert driver.cuMemAlloc_v2(ctypes.byref(block), size) == 3
    assert driver.cuInit(0) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(block), size) == 201
    assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(block), size) == 0
    assert driver.cuMemFree_v2(block) == 0
    assert driver.cuMemFree_v2(block) == 1
    assert driver.cuStreamSynchronize(ctypes.c_void_p(4096)) == 400
    assert driver.cuCtxDestroy_v2(context) == 0
    assert driver.cuCtxSynchronize() == 201
