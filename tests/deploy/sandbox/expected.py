"""What the modes are expected to have, to lose and to be allowed, written by hand."""

from collections.abc import Mapping

from deploy.sandbox.modes import MODES
from deploy.sandbox.seen import Seen

_DAC_READ_SEARCH, _SYS_PTRACE, _SYS_ADMIN, _SYSLOG, _PERFMON, _BPF = 2, 19, 21, 34, 38, 39
_BASE = (_DAC_READ_SEARCH, _SYS_PTRACE, _SYSLOG)
CAPABILITIES: Mapping[str, tuple[int, ...]] = {
    "shipped": _BASE,
    "ebpf-kernel": (*_BASE, _BPF, _PERFMON),
    "ebpf-programs": (*_BASE, _BPF, _PERFMON, _SYS_ADMIN),
    "root": _BASE,
    "plain": (),
}
"""Of the modes in the sandbox."""

ALL_UP = dict.fromkeys(("cgroup", "ebpf", "engine", "engine_log", "gpu", "host", "kernel_log", "requests"), "up")
COLLECTORS = {
    "shipped": {**ALL_UP, "ebpf": "absent"},
    "ebpf-kernel": ALL_UP,
    "ebpf-programs": ALL_UP,
    "root": {**ALL_UP, "ebpf": "absent"},
    "plain": {**ALL_UP, "ebpf": "absent", "engine": "absent", "kernel_log": "absent"},
    "reference": ALL_UP,
}

ALLOCATIONS = {
    f"oomcast_alloc_{name}"
    for name in (
        *("bytes_total", "calls_total", "failures_total", "followed_ratio", "freed_bytes_total", "frees_total"),
        *("outstanding_blocks", "outstanding_bytes", "unknown_frees_total"),
    )
}
EBPF = {
    *ALLOCATIONS,
    *("oomcast_crashes_total", "oomcast_major_faults_total"),
    *(
        f"oomcast_ebpf_{name}"
        for name in (
            *("child_cpu_seconds_total", "child_resident_bytes", "child_starts_total", "oom_victims_total"),
            *("probe_attached", "probe_failures_total", "probe_lost_total", "probe_points", "targets"),
        )
    ),
}
KERNEL_LOG = {
    f"oomcast_kernel_log_{name}_total"
    for name in (
        *("ignored_records", "lost_records", "malformed_records", "oom_kills", "overruns", "records", "segfaults"),
    )
}
ENGINE = {
    *(
        f"oomcast_engine_{name}"
        for name in (
            *("generation_tokens_total", "info", "preemptions_total", "prompt_tokens_total", "rejections_total"),
            *("requests_finished_total", "requests_running", "requests_waiting", "restarts_total"),
            *("scrape_duration_seconds", "scrape_malformed_lines_total", "short_responses_total", "state", "up"),
        )
    ),
    *(
        f"oomcast_kv_cache_{name}"
        for name in (
            *("bytes_per_token", "capacity_bytes", "capacity_tokens", "headroom_tokens", "hits_total"),
            *("largest_request_tokens", "queries_total", "usage_ratio"),
        )
    ),
    *(f"oomcast_prompt_tokens_{name}" for name in ("bucket", "count", "sum")),
}
LOST = {
    "shipped": EBPF,
    "ebpf-kernel": ALLOCATIONS,
    "ebpf-programs": set(),
    "root": EBPF,
    "plain": EBPF | KERNEL_LOG | ENGINE,
}
"""Names of series that unconfined root has, and the mode has not."""

LATE = {
    "oomcast_alloc_growth_bytes_per_second",
    "oomcast_gpu_memory_plateau_bytes",
    "oomcast_gpu_memory_plateau_headroom_bytes",
}
"""They come after a minute, and the modes were not started at once."""

COSTS = {f"oomcast_ebpf_cost_{name}" for name in ("per_call_seconds", "ratio", "seconds_total")}
"""Of probes in programs, where they can be measured in two seconds: in an emulated machine that is chance."""

ALLOWED = {
    **dict.fromkeys(
        (
            *("read /dev/kmsg", "read /proc/1/environ", "read /proc/meminfo", "read /proc/pressure/memory"),
            *("read /etc/shadow", "read /home/engine/log/engine.log"),
            "read /sys/fs/cgroup/system.slice/engine.service/memory.stat",
            *("read the engine's descriptors", "read the engine's mappings", "read the engine's root"),
            "open the engine's memory to read",
            *("write /tmp/file", "write into the own directory", "chown a file to the own group", "call back from C"),
            *("socket AF_UNIX", "socket AF_INET", "socket AF_INET6"),
        ),
        "ok",
    ),
    # The device may be opened, but there is no driver.
    **dict.fromkeys(("read /dev/nvidia0", "read /dev/nvidiactl", "write /dev/nvidia0"), "ENXIO"),
}
REFUSED = {
    "read /dev/vda": "EPERM",
    "read /proc/kcore": "empty",
    **dict.fromkeys(
        (
            *("write /dev/kmsg", "write /etc/oomcast/oomcast.yaml", "write /home/engine/log/engine.log"),
            *("write /proc/1/oom_score_adj", "write /proc/sys/kernel/dmesg_restrict", "write /run/file"),
            "write /sys/fs/cgroup/system.slice/engine.service/memory.max",
            *("open the engine's memory to write", "open process 1's memory to write"),
        ),
        "EACCES",
    ),
    **dict.fromkeys(("write /usr/file", "write /var/file"), "EROFS"),
    **dict.fromkeys(("socket AF_NETLINK", "socket AF_PACKET"), "EAFNOSUPPORT"),
    **dict.fromkeys(
        (
            *("map memory to write and execute", "trace the engine", "read the engine's memory by a call"),
            *("signal the engine", "load a program into the kernel", "open a counter of the kernel"),
            *("make a user namespace", "make a mount namespace", "mount", "become root", "set the clock"),
            *("set the host's name", "be scheduled in real time", "make a file set-user-id", "make a device"),
        ),
        "EPERM",
    ),
}
REFUSED_TO_ROOT = {
    "write /dev/kmsg": "EPERM",
    **dict.fromkeys(
        (
            *("write /etc/oomcast/oomcast.yaml", "write /proc/sys/kernel/dmesg_restrict"),
            "write /sys/fs/cgroup/system.slice/engine.service/memory.max",
        ),
        "EROFS",
    ),
}
"""For another reason."""

MORE_FOR_ROOT = dict.fromkeys(
    ("open process 1's memory to write", "write /proc/1/oom_score_adj", "write /run/file"), "ok"
)

_ROWS: Mapping[str, str] = {
    "oomcast_cgroup_memory_used_bytes": "memory of cgroups, pressure, host",
    "oomcast_gpu_memory_used_bytes": "GPUs, and whose memory it is",
    "oomcast_request_messages_total": "clients' messages",
    "oomcast_engine_up": "engines of other users, found by themselves",
    "oomcast_kernel_log_records_total": "kernel log: OOM kills by name, segmentation faults, Xids",
    "oomcast_crashes_total": "eBPF: crashes, OOM victims, major faults",
    "oomcast_alloc_bytes_total": "eBPF: allocations",
}
_TITLES: Mapping[str, str] = {
    "shipped": "as shipped",
    "ebpf-kernel": "+ `ebpf-kernel`",
    "ebpf-programs": "+ `ebpf-programs`",
    "root": "as shipped, but root",
    "plain": "no capability",
    "reference": "root, no sandbox",
}


def table(seen: Mapping[str, Seen]) -> str:
    """In Markdown: what each mode collected."""
    lines = [("what", *(_TITLES[mode.name] for mode in MODES)), ("---",) * (len(MODES) + 1)]
    for name, what in _ROWS.items():
        lines.append((what, *("yes" if name in seen[mode.name].names else "-" for mode in MODES)))
    logs = {
        "engines' logs in others' homes": "file",
        "engines' logs in the journal": "journal",
    }
    for what, engine in logs.items():
        read = {mode.name: seen[mode.name].total("oomcast_log_events_total", engine=engine) for mode in MODES}
        lines.append((what, *("yes" if read[mode.name] else "-" for mode in MODES)))
    owned = {mode.name: seen[mode.name].total("oomcast_oom_kills_total", owner="victim.service") for mode in MODES}
    lines.append(("a killed unit's name", *("yes" if owned[mode.name] else "slice" for mode in MODES)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
