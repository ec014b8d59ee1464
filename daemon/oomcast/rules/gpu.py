"""GPUs that are full, ill or gone."""

from oomcast.rules.config import Config
from oomcast.rules.memory import GPU_TENANT
from oomcast.rules.rule import Alert, Group, Recording, Severity

USABLE = "gpu:oomcast_gpu_memory_usable_bytes:max"

_LOST_XIDS = "62|79|95|119|120|140|143"
_HARDWARE_XIDS = "48|63|64|74|92|94|109|154|168|171|172"

_GPUS = "GPU{{ if ne $value 1.0 }}s{{ end }}"
_ARE = "{{ if eq $value 1.0 }}is{{ else }}are{{ end }}"


def group(c: Config) -> Group:
    total = f"max {c.by('gpu')} ({c.of('oomcast_gpu_memory_total_bytes')})"
    reserved = f"max {c.by('gpu')} ({c.of('oomcast_gpu_memory_reserved_bytes')})"
    recording = Recording(
        USABLE, f"{total} - {reserved}\nor\n{total}", "What can be allocated; some drivers do not tell what they keep."
    )
    return Group("oomcast-gpu", (recording, _full(c), *_xids(c), *_health(c)))


def _full(c: Config) -> Alert:
    peak = f"max {c.by('gpu')} ({c.of('oomcast_gpu_memory_used_peak_bytes')})"
    plateau = f"max {c.by('gpu')} ({c.of('oomcast_gpu_memory_plateau_bytes')})"
    foreseen = c.of("oomcast_time_to_exhaustion_seconds", 'resource="gpu_memory"')
    return Alert(
        "OomcastGpuMemoryFull", "critical", "gpu", "symptom",
        f"max {c.by()} (\n"
        f"  {peak} / {USABLE} >= {c.value('crash_memory')}\n"
        f"  and {c.on('gpu')} ({peak} - {plateau}) / {USABLE} > {c.value('burst')}\n"
        f"  and {c.on('gpu')} {foreseen}\n"
        f"  unless {c.on('gpu')} {GPU_TENANT}\n"
        ")",
        "A GPU of <node> was filled to {{ $value | humanizePercentage }} by a burst",
        "Within a minute the memory of a GPU of <node> rose from its plateau to {{ $value | humanizePercentage }}"
        f" of what can be allocated: the next allocation fails and the engine dies. Next: send prompts above"
        f" {c.tokens('long_prompt')} tokens elsewhere; the board shows which GPU, and who took it.",
        "The value of the crash, and only above the plateau that the engine holds all day: a pool that was reserved up"
        " to 99.9 % is steady and pages nobody. While the pool is being reserved the plateau is not there yet, and"
        " neither is a forecast, so that there has to be one. Not of a GPU without an engine.",
        keep=c.limits["keep"], board="long-context",
    )  # fmt: skip


def _xids(c: Config) -> tuple[Alert, ...]:
    def xid(severity: Severity, matchers: str, summary: str, text: str, why: str) -> Alert:
        total, last = c.of("oomcast_xid_errors_total", matchers), c.of("oomcast_xid_last_timestamp_seconds", matchers)
        span = c.span("event_window")
        first = f"({total} > 0 unless {total} offset {span}) and time() - {last} < {c.value('event_window')}"
        return Alert(
            "OomcastXid", severity, "gpu", "fact",
            f"count {c.by('xid')} (\n  max {c.by('gpu', 'xid')} (increase({total}[{span}])) > 0\n"
            f"  or max {c.by('gpu', 'xid')} ({first})\n)",
            f"Xid {{{{ $labels.xid }}}} on {{{{ $value }}}} {_GPUS} of <node>{summary}", text, why,
            keep=c.limits["keep" if severity == "critical" else "keep_warning"],
        )  # fmt: skip

    return (
        xid(
            "critical", f'xid=~"{_LOST_XIDS}"', ": it cannot go on",
            "The driver of <node> reports Xid {{ $labels.xid }}: the GPU is off the bus, does not answer or has lost"
            " data of any process. Next: drain the node and reset the GPU; docs/xid.md says what the code asks for.",
            "By code and not by GPU: a switch that fails takes eight GPUs with it. An error is a fact, so no `for`. A"
            " code that was not there before appears as a counter that is 1 at once, which increase() cannot see. The"
            " second half catches it, and its time tells it from an old one that a new Prometheus sees for the first"
            " time.",
        ),
        xid(
            "warning", f'xid=~"{_HARDWARE_XIDS}"', "",
            "The driver of <node> reports Xid {{ $labels.xid }}: memory, link or scheduling of a GPU had an error."
            " Next: docs/xid.md says what the code means and whether the GPU has to be reset.",
            "Hardware that degrades, and says so early.",
        ),
        xid(
            "info", f'xid!~"{_LOST_XIDS}|{_HARDWARE_XIDS}"', "",
            "The driver of <node> reports Xid {{ $labels.xid }}, which is none of the codes for a fault of the"
            " GPU: most often it is what an application that failed leaves behind. Next: look for the application's own"
            " error in its log; docs/xid.md has the codes.",
            "After-effects of applications, also of those that were killed.",
        ),
    )  # fmt: skip


def _health(c: Config) -> tuple[Alert, ...]:
    def state(names: str) -> str:
        which = c.of("oomcast_gpu_state", f'oomcast_gpu_state=~"{names}"')
        return f"count {c.by('oomcast_gpu_state')} (max {c.by('gpu', 'oomcast_gpu_state')} ({which}) == 1)"

    total = c.of("oomcast_gpu_memory_total_bytes")
    expected, gpus, up = c.of("oomcast_gpus_expected"), c.of("oomcast_gpus"), c.own("up")
    before = f"max_over_time(max {c.by()} ({gpus})[{c.ago(86_400)}:{c.ago(300)}])"
    largest = f"max_over_time(max {c.by('gpu')} ({total})[{c.ago(86_400)}:{c.ago(300)}])"
    action = c.of("oomcast_gpu_recovery_action", 'oomcast_gpu_recovery_action!="none"')
    failed, pending = (c.of(f"oomcast_gpu_row_remap_{one}") for one in ("failed", "pending"))
    return (
        Alert(
            "OomcastGpuUnavailable", "critical", "gpu", "fact", state("lost|stuck|reset_required"),
            f"{{{{ $value }}}} {_GPUS} of <node> {_ARE} {{{{ $labels.oomcast_gpu_state }}}}",
            f"{{{{ $value }}}} {_GPUS} of <node> {_ARE} {{{{ $labels.oomcast_gpu_state }}}} for the driver: what runs"
            " there hangs or dies, and that memory is not seen. Next: drain the node, then reset what oomcast_gpu_state"
            " names, or reboot.",
            "Counted by node: one page for a board of eight. A driver that was reset is back within a minute.",
            hold=c.limits["gpu_hold"], keep=c.limits["keep"],
        ),
        Alert(
            "OomcastGpuUnreadable", "warning", "gpu", "fact", state("not_permitted|unreadable"),
            f"{{{{ $value }}}} {_GPUS} of <node> cannot be read: {{{{ $labels.oomcast_gpu_state }}}}",
            f"{{{{ $value }}}} {_GPUS} of <node> {_ARE} {{{{ $labels.oomcast_gpu_state }}}} to oomcast: that memory is"
            " not seen. Next: oomcast check on the node says why.",
            "They may serve all the same.",
            hold=c.limits["gpu_hold"], keep=c.limits["keep_warning"],
        ),
        Alert(
            "OomcastGpusMissing", "warning", "gpu", "fact",
            f"max {c.by()} ({expected}) - max {c.by()} ({gpus}) > 0\n"
            f"or {before} > 0\nunless {c.on()} max {c.by()} ({gpus})\nand {c.on()} max {c.by()} ({up}) == 1",
            f"{{{{ $value }}}} {_GPUS} of <node> {_ARE} missing",
            f"The driver of <node> has {{{{ $value }}}} {_GPUS} fewer than it should have, or than within the last day:"
            " the node serves with less memory, or not at all. Next: read what the driver says (journalctl -k | grep"
            " NVRM); drain and reboot.",
            "Longer than a driver that is loaded anew. A driver that does not load at all leaves no number of GPUs:"
            " then it is the one of the day before that counts.",
            hold=c.limits["exhaustion_hold"], keep=c.limits["keep_warning"],
        ),
        Alert(
            "OomcastGpuMemoryShrunk", "warning", "gpu", "fact",
            f"{largest} - max {c.by('gpu')} ({total}) > 0",
            "{{ $labels.gpu }} on <node> lost {{ $value | humanize1024 }}B of memory",
            "{{ $labels.gpu }} on <node> has {{ $value | humanize1024 }}B less than within the last day: an engine"
            " that reserves its pool at the start gets less, or does not start. Next: see Xid 168 and 63 in"
            " docs/xid.md.",
            "A day is long enough to be seen by everybody who works there.",
            hold=c.limits["gpu_hold"], keep=c.limits["keep_warning"],
        ),
        Alert(
            "OomcastGpuNeedsRecovery", "warning", "gpu", "fact",
            "\nor ".join(f"max {c.by('gpu')} ({one}) == 1" for one in (action, failed, pending)),
            "{{ $labels.gpu }} on <node> has to be repaired",
            "The driver asks for an action on {{ $labels.gpu }} of <node>, or replaced memory rows wait for a reset, or"
            " could not be replaced. Next: see which of oomcast_gpu_recovery_action, _row_remap_pending and"
            " _row_remap_failed it is; reset or replace it when the node is drained.",
            "It goes on until then.",
            hold=c.limits["exhaustion_hold"], keep=c.limits["keep_warning"],
        ),
    )  # fmt: skip
