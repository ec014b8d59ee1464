import pytest

from oomcast_collectors.gpu.driver import Identity
from oomcast_collectors.gpu.kind import MemoryKind

GIB = 1 << 30
HOST = 120 * GIB


def identity(name: str, memory_api: str = "", addressing: str = "") -> Identity:
    return Identity("GPU-0", 0, name, "0000:3b:00.0", memory_api, addressing, persistence=None, mig=False)


def looks(identity: Identity, count: int, total: int | None = None, host_total: int | None = HOST) -> list[str]:
    kind = MemoryKind()
    return [kind.look(identity, total, host_total) for _ in range(count)]


@pytest.mark.parametrize("memory_api", ["v1", "v2"])
@pytest.mark.parametrize("addressing", ["", "none", "hmm"])
def test_a_card_that_tells_its_memory_is_dedicated_at_once(memory_api: str, addressing: str) -> None:
    assert looks(identity("NVIDIA H200", memory_api, addressing), 2, 141 * GIB) == ["dedicated"] * 2


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB300"])
def test_grace_is_coherent(name: str) -> None:
    assert looks(identity(name, "v2", "ats"), 2, 96 * GIB) == ["coherent"] * 2


def test_grace_is_coherent_though_it_has_as_much_as_the_host() -> None:
    assert looks(identity("NVIDIA GH200 120GB", "v2", "ats"), 1, HOST) == ["coherent"]


@pytest.mark.parametrize(
    "name", ["NVIDIA GB10", "NVIDIA-GB10", "NVIDIA Thor", "Thor", "Orin (nvgpu)", "Xavier", "NVIDIA Tegra X1", "nvgpu"]
)
@pytest.mark.parametrize("addressing", ["", "ats"])
def test_an_integrated_part_without_memory_is_unified_at_the_third_look(name: str, addressing: str) -> None:
    assert looks(identity(name, "", addressing), 4) == ["unknown", "unknown", "unified", "unified"]


def test_so_is_a_new_part_that_is_addressed_with_the_host() -> None:
    assert looks(identity("NVIDIA N9X", "", "ats"), 3)[-1] == "unified"


@pytest.mark.parametrize(
    "name", ["NVIDIA H200", "NVIDIA GB100", "NVIDIA GB102", "NVIDIA Thorium", "Quadro Orinoco", "XGB10", ""]
)
@pytest.mark.parametrize("addressing", ["", "none", "hmm"])
def test_a_discrete_card_without_memory_is_never_taken_for_the_host(name: str, addressing: str) -> None:
    assert set(looks(identity(name, "", addressing), 20)) == {"unknown"}


@pytest.mark.parametrize(("addressing", "expected"), [("hmm", "dedicated"), ("ats", "coherent")])
def test_unknown_is_decided_when_memory_can_be_read(addressing: str, expected: str) -> None:
    kind = MemoryKind()
    for _ in range(5):
        assert kind.look(identity("NVIDIA H200"), None, HOST) == "unknown"
    assert kind.look(identity("NVIDIA H200", "v2", addressing), 141 * GIB, HOST) == expected


def test_unknown_is_not_unified_later() -> None:
    kind = MemoryKind()
    assert kind.look(identity("NVIDIA H200"), None, HOST) == "unknown"
    assert [kind.look(identity("NVIDIA H200", "", "ats"), None, HOST) for _ in range(5)] == ["unknown"] * 5


def test_the_looks_without_memory_are_the_first_ones_without_a_break() -> None:
    kind = MemoryKind()
    gb10, answering = identity("NVIDIA GB10"), identity("NVIDIA GB10", "v2")
    seen = [kind.look(each, None, HOST) for each in (gb10, gb10, answering, gb10, gb10, gb10)]
    assert seen == ["unknown"] * 6


@pytest.mark.parametrize("first", ["v2", ""])
def test_a_decision_stands(first: str) -> None:
    kind = MemoryKind()
    decided = [kind.look(identity("NVIDIA GB10", first, "ats"), HOST if first else None, HOST) for _ in range(3)][-1]
    assert decided == "unified"
    assert kind.look(identity("NVIDIA H200", "v2"), 141 * GIB, HOST) == kind.kind == "unified"


def test_a_dedicated_card_stays_one_when_its_memory_is_gone() -> None:
    kind = MemoryKind()
    kind.look(identity("NVIDIA H200", "v2"), 141 * GIB, HOST)
    assert kind.look(identity("NVIDIA H200"), None, HOST) == "dedicated"


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (HOST, "unified"),
        (HOST * 91 // 100, "unified"),
        (HOST * 109 // 100, "unified"),
        (HOST * 89 // 100, "coherent"),
        (HOST * 111 // 100, "coherent"),
    ],
)
def test_a_gb10_that_tells_the_hosts_memory_as_its_own_is_unified(total: int, expected: str) -> None:
    assert looks(identity("NVIDIA GB10", "v2", "ats"), 1, total) == [expected]


def test_a_discrete_card_as_large_as_the_host_is_dedicated() -> None:
    assert looks(identity("NVIDIA H200", "v2"), 1, HOST) == ["dedicated"]


def test_a_total_of_zero_is_no_memory() -> None:
    assert looks(identity("NVIDIA GB10", "v2"), 3, total=0)[-1] == "unified"
    assert looks(identity("NVIDIA H200", "v2"), 3, total=0)[-1] == "unknown"


def test_nothing_is_decided_on_what_was_not_read() -> None:
    kind = MemoryKind()
    h200 = identity("NVIDIA H200", "v2")
    assert kind.look(h200, None, None) == "dedicated"  # its memory was read, and no total makes it the host's
    kind = MemoryKind()
    gb10 = identity("NVIDIA GB10", "v2", "ats")
    looks_at = ((None, HOST), (HOST, None), (HOST, HOST))
    assert [kind.look(gb10, total, host) for total, host in looks_at] == ["unknown", "unknown", "unified"]
