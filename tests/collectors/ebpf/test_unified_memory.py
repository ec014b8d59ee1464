"""What a program asks of CUDA's unified memory, on a stand-in for the driver's library that says what it was asked."""

from collectors.ebpf.followed import program
from collectors.ebpf.live import Live
from oomcast_collectors.ebpf import metrics
from requires import needs

pytestmark = needs("ebpf", "cc")

NAMES = (metrics.PREFETCHES.name, metrics.PREFETCHED_BYTES.name, metrics.MANAGED_BYTES.name)


def values(live: Live, name: str) -> list[float | None]:
    return [live.value(metric, name) for metric in NAMES]


def test_prefetches_and_managed_memory() -> None:
    with (
        program("cuda") as (cuda, target),
        program("leak") as (leak, other),
        Live(["unified_memory"], {"processes": [cuda, leak]}) as live,
    ):
        live.targets(2)
        live.settle()
        assert values(live, cuda) == [0, 0, 0]
        assert live.value(metrics.PROBE_POINTS.name, "unified_memory") == 4
        while (said := target.step())["phase"] != "managed":
            pass
        live.settle()
        # The call that failed gave nothing.
        assert (said["allocs"], said["failures"]) == (2, 1)
        expected = [said["prefetches"]["calls"], said["prefetches"]["bytes"], said["bytes"]]
        assert values(live, cuda) == expected
        assert values(live, leak) == [None, None, None]
        target.stop()
        other.stop()
        live.targets(0)
        assert values(live, cuda) == expected
        assert live.value(metrics.PROBE_LOST.name, "unified_memory", "counts") == 0
