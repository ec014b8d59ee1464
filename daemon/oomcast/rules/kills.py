"""OOM kills and crashes: facts. Whose kill it was decides how loud it is told."""

from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Group, Recording

OWNERS = "owner:oomcast_serving_start_timestamp_seconds:max"
KILLS = "owner:oomcast_oom_kills:increase5m"
KILLS_LONG = "owner:oomcast_oom_kills:increase30m"
ENGINE_KILLS = "owner:oomcast_engine_oom_kills:increase5m"


def group(c: Config) -> Group:
    return Group("oomcast-kills", (*_recordings(c), *_kills(c), *_others(c)))


def _recordings(c: Config) -> tuple[Recording, ...]:
    start = f"max_over_time({c.of('oomcast_serving_start_timestamp_seconds')}[{c.span('serving_memory')}])"
    return (
        Recording(
            OWNERS, f"max {c.by('owner')} ({start})", "Owners of engines and of what encloses them, for an hour."
        ),
        Recording(
            KILLS,
            f"sum {c.by('owner', 'limit_owner')} (round({_recent(c, 'kill_window')})) > 0",
            "The first kill of an owner that was not known before appears as a series that is 1 at once, which"
            " increase() cannot see: the second half catches it, and its time tells it from an old kill that a new"
            " Prometheus sees for the first time.",
        ),
        Recording(
            KILLS_LONG,
            f"sum {c.by('owner', 'limit_owner')} (round({_recent(c, 'kills_window')})) > 0",
            "The same of half an hour.",
        ),
        Recording(
            ENGINE_KILLS,
            _ours(c, KILLS),
            "Those that hit an engine, the limit of what encloses one, or the whole node.",
        ),
    )


def _recent(c: Config, window: str) -> str:
    kills, last = c.of("oomcast_oom_kills_total"), c.of("oomcast_oom_kill_last_timestamp_seconds")
    span = c.span(window)
    return (
        f"\n  increase({kills}[{span}])\n"
        f"  + ((clamp_max({kills}, 1) unless {kills} offset {span}) and time() - {last} < {c.value(window)})\n"
        f"  or (clamp_max({kills}, 1) unless {kills} offset {span}) and time() - {last} < {c.value(window)}\n"
        f"  or increase({kills}[{span}])\n"
    )


def _ours(c: Config, kills: str) -> str:
    around = f'label_replace({OWNERS}, "limit_owner", "$1", "owner", "(.+)")'
    return (
        f"{kills} and {c.on('owner')} {OWNERS}\n"
        f"or {kills} and {c.on('limit_owner')} {around}\n"
        f'or {kills}{{limit_owner="host"}}'
    )


def _kills(c: Config) -> tuple[Alert, ...]:
    return (
        Alert(
            "OomcastOomKill", "warning", "memory", "fact", ENGINE_KILLS,
            "The OOM killer killed a process of {{ $labels.owner }} on <node>",
            "The kernel killed {{ $value | humanize }} of the processes of {{ $labels.owner }} on <node> for want of"
            " memory{{ if $labels.limit_owner }}, under the limit of {{ $labels.limit_owner }}{{ end }}. Next: see"
            " whether it came back; the board shows memory up to the kill.",
            "A kill is a fact, so no `for`. One that recovers is a warning; that it does not is"
            " OomcastEngineKilled. Kept as long as the restart of what was killed may take.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastTenantOomKill", "info", "memory", "fact",
            f"{KILLS} unless {c.on('owner', 'limit_owner')} {ENGINE_KILLS}",
            "The OOM killer killed a process of {{ $labels.owner }} on <node>, which is no engine",
            "The kernel killed {{ $value | humanize }} of the processes of {{ $labels.owner }} on <node> for want of"
            " memory{{ if $labels.limit_owner }}, under the limit of {{ $labels.limit_owner }}{{ end }}. No engine"
            " was hit. Next: tell its owner.",
            "Somebody else's limit did what it is for.",
            keep=c.limits["keep_warning"], board="forensics",
        ),
        Alert(
            "OomcastOomKillsRepeated", "critical", "memory", "fact",
            f"(\n{_ours(c, KILLS_LONG)}\n) >= {c.value('kills_repeated')}",
            "The OOM killer keeps killing {{ $labels.owner }} on <node>",
            "{{ $value | humanize }} processes of {{ $labels.owner }} on <node> were killed for want of memory within"
            " half an hour{{ if $labels.limit_owner }}, under the limit of {{ $labels.limit_owner }}{{ end }}: it"
            " starts, grows and is killed again. Next: take its load away or raise the limit before it is restarted.",
            "Three in half an hour are a loop that nobody ends but a person.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastEngineKilled", "critical", "memory", "fact",
            f"max_over_time({ENGINE_KILLS}[{c.span('kills_window')}])\n"
            f"and {c.on('owner')} {OWNERS}\n"
            f"unless {c.on('owner')} {c.of('oomcast_serving_start_timestamp_seconds')}",
            "{{ $labels.owner }} on <node> was killed for want of memory and has not come back",
            "The OOM killer hit {{ $labels.owner }} on <node>{{ if $labels.limit_owner }}, under the limit of {{"
            " $labels.limit_owner }}{{ end }}, and for five minutes no engine has run there. Next: see why its"
            " supervisor does not restart it, and give it more memory or less load first.",
            "A supervisor that restarts it does so within five minutes.",
            hold=c.limits["down_after_kill"], keep=c.limits["keep"], board="forensics",
        ),
    )  # fmt: skip


def _others(c: Config) -> tuple[Alert, ...]:
    seen_before = f"and {c.on()} max {c.by()} ({c.own('up')} offset {c.ago(300)}) == 1"

    def rose(metric: str, *labels: str) -> str:
        total, window = c.of(metric), c.span("event_window")
        return (
            f"sum {c.by(*labels)} (increase({total}[{window}])) > 0\n"
            f"or sum {c.by(*labels)} ({total} unless {total} offset {window}) > 0\n  {seen_before}"
        )

    return (
        Alert(
            "OomcastUserspaceOomKill", "warning", "memory", "fact",
            rose("oomcast_userspace_oom_kills_total", "owner", "by"),
            "{{ $labels.by }} killed {{ $labels.owner }} on <node>",
            "{{ $labels.by }} ended {{ $labels.owner }} on <node> for want of memory, before the kernel had to."
            " Next: see whether it came back; the board shows pressure up to the kill.",
            "No counter of the kernel shows it.",
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
            "OomcastCrash", "warning", "engine", "fact", rose("oomcast_crashes_total", "process", "signal", "module"),
            "{{ $labels.process }} on <node> died of {{ $labels.signal }}",
            "{{ $labels.process }} on <node> died of {{ $labels.signal }}{{ with $labels.module }} in {{ . }}{{ end"
            " }}. Next: the daemon's log has its stack; an out-of-memory line before it in the engine's log is the"
            " cause.",
            "Its restart is the supervisor's business; that it stays down is OomcastEngineDown.",
            keep=c.limits["keep"], board="forensics",
        ),
        Alert(
            "OomcastRustPanic", "warning", "engine", "fact",
            f"sum {c.by('process')} (increase({c.of('oomcast_rust_panics_total')}[{c.span('event_window')}])) > 0",
            "Rust code of {{ $labels.process }} on <node> panicked",
            "A thread or task of {{ $labels.process }} on <node> panicked; the process may go on without it. Next:"
            " the daemon's log has the stack.",
            "A router that lost a task answers, and loses requests.",
            keep=c.limits["keep_warning"], board="forensics",
        ),
    )  # fmt: skip
