"""The ring buffers of probes, read while a target fills them."""

import time

from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build
from oomcast_collectors.ebpf import metrics
from requires import needs

pytestmark = needs("ebpf", "cc")


def test_a_target_that_makes_more_events_than_can_be_read_stops_no_report() -> None:
    probed = metrics.PROBE_POINTS.name, ("cuda_streams",)
    with Target(build("cuda_flood")) as target, Live(["cuda_streams"], {"processes": ["cuda_flood"]}) as live:
        live.until(lambda: bool(live.rows.get(probed)))
        target.go()
        began = time.monotonic()
        live.settle()
        took = time.monotonic() - began
        said = target.said()
        live.settle()
        assert took < said["seconds"], "no report while it went on"
        lost = live.value(metrics.PROBE_LOST.name, "cuda_streams", "calls")
        assert lost
        assert lost < said["calls"]
