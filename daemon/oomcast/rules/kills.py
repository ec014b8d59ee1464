"""OOM kills and crashes: facts. Whose kill it was decides how loud it is told."""

from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Group, Recording

OWNERS = "owner:oomcast_serving_start_timestamp_seconds:max"
KILLS = "owner:oomcast_oom_kills:increase5m"
TIMES = "owner:oomcast_oom_kills:times30m"
ENGINE_KILLS = "owner:oomcast_engine_oom_kills:increase5m"


LIMIT = (
    '{{ with $labels.limit_owner }}{{ if eq . "host" }}, as the whole node ran out{{ else }}, under the limit of'
    " {{ . }}{{ end }}{{ end }}"
)
"""In texts: whose limit it was, where that is known."""


def group(c: Config) -> Group:
    return Group("oomcast-kills", (*_recordings(c), *_kills(c), *_others(c)))


def _recordings(c: Config) -> tuple[Recording, ...]:
    start = f"max_over_time({c.of('oomcast_serving_start_timestamp_seconds')}[{c.span('serving_memory')}])"
    last, window = c.of("oomcast_oom_kill_last_timestamp_seconds"), c.span("kills_window")
    return (
        Recording(
            OWNERS, f"max {c.by('owner')} ({start})", "Owners of engines and of what encloses them, for an hour."
        ),
        Recording(
            KILLS,
            f"max {c.by('owner', 'limit_owner')} (round({_recent(c)})) > 0",
            "The first kill of an owner that was not known before appears as a series that is 1 at once, which"
            " increase() cannot see: the second half catches it, and its time tells it from an old kill that a new"
            " Prometheus sees for the first time. A series that began at 0 adds nothing there. max: two daemons of a"
            " node, while one takes the place of the other, count the same kill.",
        ),
        Recording(
            TIMES,
            f"max {c.by('owner', 'limit_owner')} (\n"
            f"  changes({last}[{window}])\n"
            f"  + (time() - min_over_time({last}[{window}]) < bool {c.value('kills_window')})\n"
            ") > 0",
            "How often in half an hour, by the times of the last kill: where a container dies as a whole, one time is"
            " a kill of each of its processes. What the series began with counts if that is within the half hour.",
        ),
        Recording(
            ENGINE_KILLS,
            f"{_ours(c, KILLS)}\nor {KILLS} unless {c.on()} {_lists(c)}",
            "Those that hit an engine, the limit of what encloses one, or the whole node. Where no processes are listed"
            " it cannot be told who is an engine: then all of them.",
        ),
    )


def _recent(c: Config) -> str:
    kills, last = c.of("oomcast_oom_kills_total"), c.of("oomcast_oom_kill_last_timestamp_seconds")
    span = c.span("kill_window")
    first = (
        f"(clamp_max(min_over_time({kills}[{span}]), 1) unless {kills} offset {span})"
        f" and time() - {last} < {c.value('kill_window')}"
    )
    return f"\n  increase({kills}[{span}])\n  + ({first})\n  or {first}\n  or increase({kills}[{span}])\n"


def _ours(c: Config, kills: str) -> str:
    around = f'label_replace({OWNERS}, "limit_owner", "$1", "owner", "(.+)")'
    return (
        f"{kills} and {c.on('owner')} {OWNERS}\n"
        f"or {kills} and {c.on('limit_owner')} {around}\n"
        f'or {kills}{{limit_owner="host"}}'
    )


def _lists(c: Config) -> str:
    """Nodes on which engines are told from others by their processes, as the dropped names tell."""
    return f"max_over_time({c.of('oomcast_process_names_dropped')}[{c.span('serving_memory')}])"


def _kills(c: Config) -> tuple[Alert, ...]:
    return (
        Alert(
            "OomcastOomKill", "warning", "memory", "fact", ENGINE_KILLS,
            "The OOM killer killed a process of {{ $labels.owner }} on <node>",
            "The kernel killed {{ $value | humanize }} of the processes of {{ $labels.owner }} on <node> for want of"
            f" memory{LIMIT}. Next: see whether it came back; the board shows memory up to the kill.",
            "A kill is a fact, so no `for`. One that recovers is a warning; that it does not is"
            " OomcastEngineKilled. Kept as long as the restart of what was killed may take.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastTenantOomKill", "info", "memory", "fact",
            f"{KILLS} unless {c.on('owner', 'limit_owner')} {ENGINE_KILLS}",
            "The OOM killer killed a process of {{ $labels.owner }} on <node>, which is no engine",
            "The kernel killed {{ $value | humanize }} of the processes of {{ $labels.owner }} on <node> for want of"
            f" memory{LIMIT}. No engine was hit. Next: tell its owner.",
            "Somebody else's limit did what it is for.",
            keep=c.limits["keep_warning"], board="forensics",
        ),
        Alert(
            "OomcastOomKillsRepeated", "critical", "memory", "fact",
            f"(\n{_ours(c, TIMES)}\n) >= {c.value('kills_repeated')}",
            "The OOM killer keeps killing {{ $labels.owner }} on <node>",
            "{{ $labels.owner }} on <node> was hit {{ $value | humanize }} times within"
            f" {c.said('kills_window')} for want of"
            f" memory{LIMIT}: it starts, grows and is killed again. Next: take its load away or raise the limit before"
            " it is restarted.",
            "Three in half an hour are a loop that nobody ends but a person.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastEngineKilled", "critical", "memory", "fact",
            _gone(c),
            "{{ $labels.owner }} on <node> was killed for want of memory and has not come back",
            f"The OOM killer hit {{{{ $labels.owner }}}} on <node>{LIMIT}, and for"
            f" {c.said('down_after_kill')} no engine has run"
            " there. Next: see why its supervisor does not restart it, and give it more memory or less load first.",
            "A supervisor that restarts it does so within five minutes. An engine under a new name that started after"
            " the kill, as of a new pod, takes its place. Only while processes can be listed, as the dropped names"
            " tell.",
            hold=c.limits["down_after_kill"], keep=c.limits["keep"], board="forensics",
        ),
    )  # fmt: skip


def _gone(c: Config) -> str:
    start, window = c.of("oomcast_serving_start_timestamp_seconds"), c.span("kills_window")
    newcomers = f"{start} unless {c.on('owner')} {start} offset {window}"
    last = f"max_over_time({c.of('oomcast_oom_kill_last_timestamp_seconds')}[{window}])"
    return (
        f"max_over_time({ENGINE_KILLS}[{window}])\n"
        f"and {c.on('owner')} {OWNERS}\n"
        f"and {c.on()} {c.of('oomcast_process_names_dropped')}\n"
        f"unless {c.on('owner')} {start}\n"
        f"unless {c.on()} (max {c.by()} ({newcomers}) > max {c.by()} ({last}))"
    )


def _others(c: Config) -> tuple[Alert, ...]:
    daemon = f"max {c.by()} ({c.own('up')} offset {c.span('event_window')})"
    child = c.of("oomcast_collector_up", 'collector="ebpf"')
    probes = f"max {c.by()} ({child} offset {c.span('event_window')})"
    targets = f"max_over_time({c.of('oomcast_ebpf_targets')}[{c.span('serving_memory')}])"

    def rose(metric: str, source: str, *labels: str) -> str:
        total, window = c.of(metric), c.span("event_window")
        return (
            f"sum {c.by(*labels)} (increase({total}[{window}])) > 0\n"
            f"or sum {c.by(*labels)} ({total} unless {total} offset {window}) > 0\n  and {c.on()} {source} == 1"
        )

    return (
        Alert(
            "OomcastUserspaceOomKill", "warning", "memory", "fact",
            rose("oomcast_userspace_oom_kills_total", daemon, "owner", "by"),
            "{{ $labels.by }} killed {{ $labels.owner }} on <node>",
            "{{ $labels.by }} ended {{ $labels.owner }} on <node> for want of memory, before the kernel had to."
            " Next: see whether it came back; the board shows pressure up to the kill.",
            "No counter of the kernel shows it. Its first kill is a series that is 1 at once; whether it was there"
            " before can be told where Prometheus saw the daemon before.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastOomKillUnattributed", "warning", "memory", "fact",
            f"sum {c.by()} (increase({c.of('oomcast_oom_kills_unattributed_total')}[{c.span('kill_window')}])) > 0",
            "The OOM killer killed a process on <node>, nobody knows whose",
            "The kernel of <node> counted an OOM kill for which no cgroup became known. Next: the kernel's log"
            " (journalctl -k) names the process.",
            "It may have been an engine's.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastCrash", "warning", "engine", "fact",
            f"(\n{rose('oomcast_crashes_total', probes, 'process', 'signal', 'module')}\n)\n"
            f"and {c.on('process')} {targets}",
            "{{ $labels.process }} on <node> died of {{ $labels.signal }}",
            "{{ $labels.process }} on <node> died of {{ $labels.signal }}{{ with $labels.module }} in {{ . }}{{ end"
            " }}. Next: see the last lines of the engine's log, where an out-of-memory error is the cause; coredumpctl"
            " info has the stack, where cores are kept.",
            "Of what the probes follow, which are engines: other programs of the node crash too. Its restart is the"
            " supervisor's business; that it stays down is OomcastEngineDown.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastRustPanic", "warning", "engine", "fact",
            rose("oomcast_rust_panics_total", probes, "process"),
            "Rust code of {{ $labels.process }} on <node> panicked",
            "A thread or task of {{ $labels.process }} on <node> panicked; the process may go on without it. Next:"
            " its own log has what the panic says.",
            "A router that lost a task answers, and loses requests.",
            keep=c.limits["keep_warning"], board="forensics",
        ),
    )  # fmt: skip
