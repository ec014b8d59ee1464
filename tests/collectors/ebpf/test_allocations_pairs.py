"""What follows from the settings: kinds, groups and the functions that run."""

import re
from typing import Any

import pytest

from oomcast_collectors.ebpf.child.allocations.pairs import plan
from oomcast_collectors.ebpf.child.allocations.part import adapt
from oomcast_collectors.ebpf.description import Uprobe, read
from oomcast_collectors.ebpf.settings import Allocations, EbpfSettings

OWN = {"kind": "flow", "library": "libpool.so*", "allocate": "pool_get", "free": "pool_put"}


def planned(**settings: Any) -> Any:
    return plan(Allocations.model_validate(settings))


def uprobe(probes: list[Uprobe], symbol: str) -> Uprobe:
    (found,) = [probe for probe in probes if probe.symbol == symbol]
    return found


def test_what_is_always_followed() -> None:
    assert planned().numbers == {"brk": 1, "mmap": 2}
    assert planned().uprobes == []
    assert planned().text == ""


def test_each_kind_has_a_number_and_a_group() -> None:
    found = planned(libc="full", pairs=["cuda", "cudart", "jemalloc", "tcmalloc", "rust", OWN])
    assert sorted(found.numbers.values()) == list(range(1, len(found.numbers) + 1))
    assert found.groups["cuda_managed"] == found.groups["cuda_host"] == "cuda"
    assert set(found.groups.values()) == set(found.spaces)
    assert len(set(found.spaces.values())) == len(found.spaces)


def test_a_pair_may_be_called_like_a_group() -> None:
    found = planned(pairs=[OWN])
    assert found.groups["flow"] not in ("flow", "libc")
    assert found.spaces[found.groups["flow"]] != 0


def test_arguments_of_a_pair() -> None:
    own = {**OWN, "kind": "pool", "size": 2, "count": 3, "result": 1, "freed": 4}
    text = planned(pairs=[own]).text
    begin = "begin(ctx, 1, PT_REGS_PARM2(ctx) * PT_REGS_PARM3(ctx), 0, PT_REGS_PARM1(ctx), 0, 0)"
    assert begin in text
    assert "took(1, 3, PT_REGS_PARM4(ctx), 1)" in text


@pytest.mark.parametrize(("libc", "keeps"), [("full", 1), ("sampled", 0)])
def test_blocks_are_followed_where_all_calls_are(libc: str, keeps: int) -> None:
    text = planned(libc=libc, pairs=["cuda"]).text
    assert set(re.findall(r"on_libc_0_return.*end\(ctx, \d, \d, (\d)\)", text)) == {str(keeps)}
    assert set(re.findall(r"on_cuda_\d+_return.*end\(ctx, \d, \d, (\d)\)", text)) == {"1"}


def test_only_frees_are_probed_where_it_is_cheap() -> None:
    probes = list(planned(libc="full").uprobes)
    assert uprobe(probes, "free").shift
    assert uprobe(probes, "free").leave is None
    assert not uprobe(probes, "malloc").shift
    assert uprobe(probes, "aligned_alloc").entry == uprobe(probes, "memalign").entry


@pytest.mark.parametrize(
    "name",
    ["__rust_alloc", "_RNvCsfLfy6EI15iL_7___rustc12___rust_alloc", "_RNvCs4fqI2P2rA04_7___rustc12___rust_alloc"],
)
def test_names_of_rusts_allocator(name: str) -> None:
    symbols = [probe.symbol for probe in planned(pairs=["rust"]).uprobes]
    matching = [s for s in symbols if s == name or (s.startswith("/") and re.search(s.strip("/"), name))]
    assert len(matching) == 1


def test_tables_are_as_large_as_the_settings_want() -> None:
    description, text = read("allocations", None)

    def constants(**settings: Any) -> Any:
        return adapt(description, text, EbpfSettings.model_validate({"allocations": settings}))[2]

    assert constants(libc="full", live=1 << 20)["LIVE"] == 1 << 20
    assert constants(live=1 << 20)["LIVE"] == 1 << 16
    assert constants(live=2048)["LIVE"] == 2048
