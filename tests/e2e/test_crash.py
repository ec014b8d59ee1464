"""One crash, told by the kernel's log and by a program in the kernel, through the real daemon: one joined event."""

import time
from pathlib import Path

from e2e.program import OUR_OWN_OFF, program, until
from ebpf_lab.lab import Target, build
from requires import needs

pytestmark = needs("ebpf", "cc", "kmsg")


def test_both_witnesses_are_joined(tmp_path: Path) -> None:
    on = OUR_OWN_OFF.replace("kernel_log: {enabled: false}", "kernel_log: {interval: 0.5}")
    on = on.replace("ebpf: {enabled: false}", "ebpf: {enabled: true, probes: [crashes], targets: {processes: [crash]}}")
    with (
        program(tmp_path, f'http: {{listen: "127.0.0.1:{{port}}"}}\n{on}\n') as daemon,
        Target(build("crash"), "null_read") as target,
    ):
        until(lambda: daemon.value("oomcast_ebpf_targets", 'process="crash"') == 1, 60)
        target.go()
        crash = 'module="crash",process="crash",signal="SIGSEGV"'
        until(lambda: daemon.value("oomcast_crashes_total", crash) == 1, 20)
        until(lambda: (daemon.value("oomcast_kernel_log_segfaults_total", 'module="crash"') or 0) >= 1, 20)
        until(lambda: (daemon.value("oomcast_events_total", 'kind="crash_joined"') or 0) >= 1, 30)
        # Two that were not joined would be told within a moment of each other.
        time.sleep(2)
        assert daemon.value("oomcast_events_total", 'kind="crash_joined"') == 1
