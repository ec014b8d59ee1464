"""Memory that runs out: forecasts for cgroups, the host and GPUs."""

from oomcast.rules import reclaim
from oomcast.rules.config import Config
from oomcast.rules.reclaim import SERVING
from oomcast.rules.rule import Alert, Component, Group, Recording

LOADED = "object:oomcast_time_to_exhaustion_seconds:loaded"
LEFT = "object:oomcast_memory_left:ratio"
GUARDED = "object:oomcast_time_to_exhaustion_seconds:guarded"
SUDDEN = "object:oomcast_time_to_exhaustion_seconds:sudden"
GPU_ENGINE = "gpu:oomcast_engine:group"
GPU_TENANT = "gpu:oomcast_tenant:group"
OBJECT = ("resource", "cgroup", "gpu")


def group(c: Config) -> Group:
    return Group("oomcast-memory", (*_recordings(c), *_holders(c), *_exhaustion(c), _sudden(c), *reclaim.rules(c)))


def _recordings(c: Config) -> tuple[Recording, ...]:
    cgroups, hosts, gpus = (
        c.of("oomcast_time_to_exhaustion_seconds", f'resource=~"{one}"')
        for one in ("cgroup_memory", "host_memory", "gpu_memory|gpu_mig_memory")
    )
    known = c.of("oomcast_engine_info", 'cgroup!=""')
    warned = f"min_over_time({GUARDED}[{c.ago(300)}] offset {c.ago(60)}) < {c.value('exhaustion_critical')}"
    start = f"max_over_time({c.of('oomcast_serving_start_timestamp_seconds')}[{c.span('serving_memory')}])"
    info = f"max_over_time({known}[{c.span('serving_memory')}])"
    return (
        Recording(
            SERVING,
            f"max {c.by('cgroup')} ({start})\nor\n0 * max {c.by('cgroup')} ({info})",
            "Cgroups of engines and what encloses them, and when the youngest engine in them started; they stay for an"
            " hour, as an engine that was killed is no longer there. Of one known by its address alone the start is"
            " not known and taken to be long ago.",
        ),
        Recording(
            LOADED,
            f"min {c.by('resource', 'cgroup')} ({cgroups})\n"
            f"unless {c.on('cgroup')} (time() - {SERVING} < {c.value('load_grace')})\n"
            f"or min {c.by('resource')} ({hosts})\n"
            f"unless {c.on()} (time() - max {c.by()} ({SERVING}) < {c.value('load_grace')})\n"
            f"or min {c.by('resource', 'gpu')} ({gpus})",
            "An engine that loads its model into anonymous memory looks like a leak, of its cgroup and of the host. Of"
            " GPUs the daemon itself leaves out what is being loaded, see gpu.load_grace.",
        ),
        _left(c),
        Recording(
            GUARDED,
            f"{LOADED}\n"
            f"unless {c.on(*OBJECT)} (\n"
            f"  {LOADED} < {c.value('exhaustion_critical')} and {c.on(*OBJECT)} {LEFT} >= {c.value('plenty')}\n"
            f"  unless max_over_time({LOADED}[{c.span('plenty_hold')}]) < {c.value('exhaustion_critical')}\n"
            ")",
            "Where plenty is left a rise has to last: any program that starts rises for some seconds. Where little is"
            " left it need not.",
        ),
        Recording(
            SUDDEN,
            f"{GUARDED} < {c.value('exhaustion_sudden')}\nunless {c.on(*OBJECT)} ({warned})",
            "What nobody can act on in time, for the first minute. No page meanwhile: one evaluation is enough to start"
            " it, and keep_firing_for would go on with it long after the rise has ended.",
        ),
    )


def _left(c: Config) -> Recording:
    used, limit, available, total = (
        f"max {c.by(*labels)} ({c.of(metric)})"
        for metric, labels in (
            ("oomcast_cgroup_memory_unreclaimable_bytes", ("cgroup",)),
            ("oomcast_cgroup_memory_effective_limit_bytes", ("cgroup",)),
            ("oomcast_host_memory_available_bytes", ()),
            ("oomcast_host_memory_total_bytes", ()),
        )
    )
    cgroups, hosts = f"1 - {used} / ({limit} > 0)", f"{available} / ({total} > 0)"
    return Recording(
        LEFT,
        f'label_replace({cgroups}, "resource", "cgroup_memory", "", "")\n'
        f'or label_replace({hosts}, "resource", "host_memory", "", "")',
        "Share of a cgroup's limit, or of the host's memory, that is left.",
    )


def _holders(c: Config) -> tuple[Recording, ...]:
    """Whose a GPU is, by the cgroups of the processes on it."""
    memory = c.of("oomcast_gpu_process_memory_bytes", 'cgroup!=""')
    holders = f"group {c.by('gpu', 'cgroup')} (last_over_time({memory}[{c.span('keep')}]))"
    known = c.of("oomcast_engine_info", 'cgroup!=""')
    engines = f"group {c.by('cgroup', 'engine')} (last_over_time({known}[{c.span('keep')}]))"
    unknown = c.of("oomcast_gpu_process_memory_bytes", 'cgroup=~"/?"')
    unresolved = c.of("oomcast_gpu_processes_unresolved")
    return (
        Recording(
            GPU_ENGINE,
            f"group {c.by('gpu', 'engine')} (\n"
            f"  {holders}\n"
            f"  * {c.on('cgroup')} group_left (engine)\n"
            f"  ({engines}\n  and {c.on('cgroup')} (count {c.by('cgroup')} ({engines}) == 1))\n"
            ")",
            "Whose GPU it is, by the cgroup of the processes on it, where that has one engine: an engine on eight GPUs"
            " is one alert.",
        ),
        Recording(
            GPU_TENANT,
            f"group {c.by('gpu')} ({holders})\n"
            f"unless {c.on('gpu')} ({holders} and {c.on('cgroup')} {SERVING})\n"
            f"unless {c.on('gpu')} {unknown}\n"
            f"unless {c.on('gpu')} {unresolved} > 0\n"
            f"and {c.on()} {c.of('oomcast_process_names_dropped')}",
            "GPUs on which no engine is, by the same cgroups: a training job fills its own every day. Not where the"
            " root cgroup, or a process that is not known, has a part of it. Only while processes can be listed, as"
            " the dropped names tell.",
        ),
    )


def _exhaustion(c: Config) -> tuple[Alert, ...]:
    cgroups = f'{GUARDED}{{resource="cgroup_memory"}}'
    hosts = f'{GUARDED}{{resource="host_memory"}}'
    gpus = f'{GUARDED}{{resource=~"gpu.*"}}'
    paged = f"({_in_time(c, gpus)}\n  unless {c.on('gpu')} {GPU_TENANT})"
    return (
        *_pair(
            c, "OomcastCgroupExhaustion", "memory", (cgroups, _in_time(c, cgroups)),
            f"\nand {c.on('cgroup')} {SERVING}",
            "Memory of {{ $labels.cgroup }} on <node> runs out in {{ $value | humanizeDuration }}",
            "What the kernel cannot reclaim of cgroup {{ $labels.cgroup }} on <node> rises so fast that it meets its"
            " limit in {{ $value | humanizeDuration }}; then the OOM killer ends a process of it. Next: take load off"
            " it, or raise the limit (oomcast snapshot on the node shows what rises).",
            "Only what cannot be reclaimed counts: a writer fills the page cache and pages nobody.",
        ),
        Alert(
            "OomcastTenantExhaustion", "info", "memory", "forecast",
            f"{cgroups} < {c.value('exhaustion_critical')}\nunless {c.on('cgroup')} {SERVING}",
            "Memory of {{ $labels.cgroup }} on <node> runs out, no engine is in it",
            "Cgroup {{ $labels.cgroup }} on <node> meets its limit in {{ $value | humanizeDuration }}. No engine that"
            " oomcast knows is in it. Next: tell its owner.",
            "What is not ours is for its owner to know.",
            hold=c.limits["exhaustion_hold"], keep=c.limits["keep_warning"],
        ),
        *_pair(
            c, "OomcastHostExhaustion", "memory", (hosts, _in_time(c, hosts)), "",
            "Memory of <node> runs out in {{ $value | humanizeDuration }}",
            "What the kernel cannot reclaim on <node> rises so fast that the node is out of memory in"
            " {{ $value | humanizeDuration }}; then the OOM killer chooses among all processes. Next: take load off the"
            " node; oomcast snapshot on it shows what rises.",
            "Not while an engine loads its model.",
        ),
        *_pair(
            c, "OomcastGpuExhaustion", "gpu", (_by_engine(c, gpus), _by_engine(c, paged)), "",
            "GPU memory{{ with $labels.engine }} of engine {{ . }}{{ end }} on <node> runs out in"
            " {{ $value | humanizeDuration }}",
            "GPU memory{{ with $labels.engine }} of engine {{ . }}{{ end }} on <node> rises so fast that an allocation"
            " fails in {{ $value | humanizeDuration }}; then the engine dies and its clients get empty answers. Next:"
            f" send prompts above {c.tokens('long_prompt')} tokens elsewhere; the board shows who"
            " takes the memory and how long prompts are.",
            "One alert for an engine and not for each of its GPUs: the first that is full ends it. A pool that was"
            " reserved at the start does not rise, and a model that is being loaded has no forecast.",
        ),
    )  # fmt: skip


def _in_time(c: Config, left: str) -> str:
    return f"{left} unless {c.on(*OBJECT)} {SUDDEN}"


def _by_engine(c: Config, gpus: str) -> str:
    """Of the GPUs of an engine the one that is full first; of GPUs that are nobody's, of the node."""
    one = f"({GPU_ENGINE} and {c.on('gpu')} (count {c.by('gpu')} ({GPU_ENGINE}) == 1))"
    return (
        f"min {c.by('resource', 'engine')} (\n"
        f"  {gpus} * {c.on('gpu')} group_left (engine) {one}\n"
        f"  or\n"
        f"  ({gpus} unless {c.on('gpu')} {one})\n"
        ")"
    )


def _pair(
    c: Config, name: str, component: Component, left: tuple[str, str], ours: str, summary: str, text: str, why: str
) -> tuple[Alert, Alert]:
    """left: what is left, for the warning and for the page."""
    board = "long-context" if component == "gpu" else "node"
    return (
        Alert(
            name, "critical", component, "forecast",
            f"({left[1]}) < {c.value('exhaustion_critical')}{ours}",
            summary, text,
            f"{why} No `for`: the forecast has a noise floor and a robust slope of its own, and each evaluation that is"
            " waited for is one that is missing at the end.",
            keep=c.limits["keep"], board=board,
        ),
        Alert(
            name, "warning", component, "forecast",
            f"{left[0]} < {c.value('exhaustion_warning')}{ours}",
            summary, text,
            "An hour is long: the trend has to last.",
            hold=c.limits["exhaustion_hold"], keep=c.limits["keep_warning"], board=board,
        ),
    )  # fmt: skip


def _sudden(c: Config) -> Alert:
    ours = f'{SUDDEN}{{resource!="cgroup_memory"}} unless {c.on("gpu")} {GPU_TENANT}'
    return Alert(
        "OomcastExhaustionSudden", "warning", "memory", "forecast",
        f"{ours}\nor {SUDDEN} and {c.on('cgroup')} {SERVING}",
        "{{ $labels.resource }} on <node> runs out in {{ $value | humanizeDuration }}, without warning",
        "{{ $labels.resource }}{{ with or $labels.cgroup $labels.gpu }} of {{ . }}{{ end }} on"
        " <node> is exhausted in {{ $value | humanizeDuration }}, and a minute ago nothing told of it. Next:"
        " nobody is quick enough; automation that takes this alert stops admission to the node's engines.",
        "Goes to a machine, so it is not critical, which asks for a person. The page for people about the same"
        " memory is held back meanwhile, and comes after two minutes if memory still runs out.",
        keep=c.limits["keep_sudden"], audience="automation",
    )  # fmt: skip
