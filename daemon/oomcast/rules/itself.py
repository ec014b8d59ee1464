"""oomcast itself: that it watches, everywhere and fresh, and keeps to its budget."""

from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Group, Recording

ENGINES = "node:oomcast_engines:group"


def group(c: Config) -> Group:
    return Group("oomcast-itself", (_engines(c), *_down(c), *_watching(c), *_whole(c), *_modest(c)))


def _engines(c: Config) -> Recording:
    told = f"{c.of('oomcast_serving_start_timestamp_seconds')} or {c.of('oomcast_engine_up')}"
    listed = c.of("oomcast_process_names_dropped")
    return Recording(
        ENGINES,
        f"group {c.by()} ({told})\n"
        f"or group {c.by()} ({c.own('up')} == 1) unless {c.on()} {listed}\n"
        f"or {ENGINES} and {c.on()} max {c.by()} ({c.own('up')}) == 0",
        "Nodes with engines, and those where no processes are listed, so that it cannot be told. Of one that does not"
        " answer it is what was recorded last: one that was drained before it is restarted has none.",
    )


def _down(c: Config) -> tuple[Alert, ...]:
    down = f"max {c.by()} ({c.own('up')}) == 0"
    summary = "oomcast on <node> does not answer"
    text = (
        f"No scrape of oomcast on <node> has succeeded for {c.said('down')}: nothing watches the memory of this node,"
        " and alerts about it will end without being over. Next: see whether the node lives, then systemctl status"
        " oomcast."
    )
    return (
        Alert(
            "OomcastDown", "critical", "oomcast", "itself", f"{down}\nand {c.on()} {ENGINES}", summary, text,
            "Four scrapes. Earlier than any other alert of the node gives up for want of data. A node that thrashes"
            " stops answering too.",
            hold=c.limits["down"], keep=c.limits["keep"], sample=15, board="itself",
        ),
        Alert(
            "OomcastDown", "warning", "oomcast", "itself", f"{down}\nunless {c.on()} {ENGINES}", summary, text,
            "Nodes without engines are restarted every day.",
            hold=c.limits["down"], keep=c.limits["keep_warning"], sample=15, board="itself",
        ),
    )  # fmt: skip


def _watching(c: Config) -> tuple[Alert, ...]:
    up = c.own("up")
    unlabelled = c.own("up", f'{c.nodes[-1]}=""')
    clusters = f"({', '.join((*c.nodes[:-1], 'instance'))})"
    return (
        Alert(
            "OomcastAbsent", "critical", "oomcast", "itself", f"absent({up})",
            "Prometheus knows no oomcast at all",
            "No target of a job of oomcast is known to this Prometheus: no node is watched. Next: see its page of"
            " targets, and whether the job was renamed.",
            "Longer than a Prometheus that starts needs to find its targets.",
            hold=c.limits["absent"], keep=c.limits["keep"], sample=300, board="itself",
        ),
        Alert(
            "OomcastNodeUncovered", "warning", "oomcast", "itself",
            _uncovered(c),
            "GPU node <node> has no oomcast",
            "Kubernetes counts {{ $value | humanize }} GPUs, or parts of GPUs of one kind, on <node>, where oomcast has"
            " no target: nothing watches its memory. Next: see why the DaemonSet does not run there (taints,"
            " selectors).",
            "By kube-state-metrics, whose series name the node too. Where they do not name its cluster, any target of"
            " that node will do. Longer than a node takes to join.",
            hold=c.limits["config_hold"], keep=c.limits["keep_warning"], sample=60, board="itself",
        ),
        Alert(
            "OomcastTargetUnlabelled", "warning", "oomcast", "itself",
            f"count by {clusters} ({unlabelled}) > 0",
            "Target {{ $labels.instance }} of oomcast has no label <label>",
            "Rules and boards tell nodes apart by the label <label>, which {{ $labels.instance }} lacks: all such"
            " nodes are one to them. Next: take the relabeling of the scrape configurations that come with oomcast.",
            "A setting, which does not change by itself.",
            hold=c.limits["absent"], keep=c.limits["keep_warning"], sample=15, board="itself",
        ),
        Alert(
            "OomcastWatchdog", "none", "oomcast", "itself", "vector(1)",
            "Alerts of oomcast get through",
            "Always firing: whoever does not hear of it any more should look after Prometheus and Alertmanager.",
            "A dead-man switch: its receiver alarms when it stays away.",
            board="itself",
        ),
    )  # fmt: skip


def _uncovered(c: Config) -> str:
    up, node = c.own("up"), c.nodes[-1]
    capacity = c.of("kube_node_status_capacity", 'resource=~"nvidia_com_(gpu|mig).*"')
    if node != "node":
        capacity = f'label_replace({capacity}, "{node}", "$1", "node", "(.+)")'
    # kube-state-metrics has no other label that somebody gives to targets of oomcast.
    place = f"({', '.join(label for label in c.nodes if label in ('cluster', node))})"
    return (
        f"max by {place} ({capacity}) > 0\n"
        f"unless on {place} max by {place} ({up})\n"
        f"unless on {place} max by ({node}) ({up})"
    )


def _whole(c: Config) -> tuple[Alert, ...]:
    last = c.of("oomcast_collector_last_success_timestamp_seconds")
    period = c.of("oomcast_collector_period_seconds")
    overdue = f"time() - max {c.by('collector')} ({last})"
    works = f"max {c.by('collector')} ({c.of('oomcast_collector_up')}) == 1"
    failed = f"sum {c.by('chore')} (increase({c.of('oomcast_chore_failures_total')}[{c.span('event_window')}]))"
    span = c.span("event_window")
    skipped = f"increase({c.of('oomcast_log_bytes_skipped_total')}[{span}])"
    cut = f"increase({c.of('oomcast_log_cut_lines_total')}[{span}]) > 0"
    lost = "\nor ".join(
        f'label_replace(sum {c.by()} ({what}) > 0, "input", "{name}", "", "")'
        for name, what in (
            ("kernel log", f"increase({c.of('oomcast_kernel_log_lost_records_total')}[{span}])"),
            ("request messages", f"increase({c.of('oomcast_request_messages_lost_total')}[{span}])"),
            ("engine logs", f"{skipped} unless {cut}"),
            ("eBPF events", f"increase({c.of('oomcast_ebpf_probe_lost_total')}[{span}])"),
        )
    )
    return (
        Alert(
            "OomcastCollectorDown", "warning", "oomcast", "itself",
            f"min {c.by('collector')} ({c.of('oomcast_collector_up')}) == 0",
            "Collector {{ $labels.collector }} of oomcast on <node> fails",
            "Collector {{ $labels.collector }} of oomcast on <node> has had no result for"
            f" {c.said('down')}; its series are absent, and alerts that read them are blind."
            " Next: the daemon's log and oomcast check on the node say why.",
            "Longer than one failed run.",
            hold=c.limits["down"], keep=c.limits["keep_warning"], board="itself",
        ),
        Alert(
            "OomcastStale", "warning", "oomcast", "itself",
            f"{overdue} > {c.value('stale')} + 3 * max {c.by('collector')} ({period})\n"
            f"and {c.on('collector')} {works}\n"
            f"or label_replace(max {c.by()} ({c.of('oomcast_scheduler_loop_age_seconds')}) > {c.value('stale')},"
            ' "collector", "scheduler", "", "")',
            "{{ $labels.collector }} of oomcast on <node> has been silent for {{ $value | humanizeDuration }}",
            "What {{ $labels.collector }} of oomcast on <node> tells is {{ $value | humanizeDuration }} old, though"
            " the daemon answers. Next: the daemon's log on the node; a driver or file system that hangs is the usual"
            " cause.",
            "The threshold has the time in it. One that fails is OomcastCollectorDown; one whose subject left the"
            " machine has nothing to tell.",
            keep=c.limits["keep_warning"], sample=60, board="itself",
        ),
        Alert(
            "OomcastProbeDetached", "warning", "oomcast", "itself",
            f"min {c.by('probe')} ({c.of('oomcast_ebpf_probe_attached')}) == 0",
            "eBPF probe {{ $labels.probe }} on <node> is not attached",
            "Probe {{ $labels.probe }} on <node> counts nothing: its series are absent or stand still. Next: oomcast"
            " check --ebpf on the node says why.",
            "Longer than a child that is started anew.",
            hold=c.limits["absent"], keep=c.limits["keep_warning"], board="itself",
        ),
        Alert(
            "OomcastInputLost", "warning", "oomcast", "itself", lost,
            "oomcast on <node> lost a part of its input: {{ $labels.input }}",
            "A part of what oomcast on <node> reads ({{ $labels.input }}) came faster than it could be taken and is in"
            " no counter: counts of that time are lower bounds. Next: see who writes so much.",
            "Counts that are too low should not look right. Ends of long lines are left out of an engine's logs as"
            " well, and are no loss.",
            keep=c.limits["keep_warning"], board="itself",
        ),
        Alert(
            "OomcastChoreFails", "warning", "oomcast", "itself", f"{failed} > 0",
            "Chore {{ $labels.chore }} of oomcast on <node> fails",
            "A part of the daemon's own work ({{ $labels.chore }}) failed on <node>: a defect. Next: its log has the"
            " traceback; please report it.",
            "It should never be seen.",
            keep=c.limits["keep_warning"], board="itself",
        ),
    )  # fmt: skip


def _modest(c: Config) -> tuple[Alert, ...]:
    memory = f"max {c.by()} ({c.own('process_resident_memory_bytes')})"
    cpu = f"max {c.by()} (rate({c.own('process_cpu_seconds_total')}[{c.ago(300)}]))"
    starts = f"changes({c.own('process_start_time_seconds')}[{c.span('kills_window')}])"
    return (
        Alert(
            "OomcastOverMemoryBudget", "warning", "oomcast", "itself", f"{memory} > {c.value('own_memory')}",
            "oomcast on <node> takes {{ $value | humanize1024 }}B",
            "oomcast on <node> holds {{ $value | humanize1024 }}B, its budget is 64 MB. Next: the board shows which"
            " collector has most series; please report a rise that does not end.",
            "Above what thousands of cgroups take.",
            hold=c.limits["own_hold"], keep=c.limits["keep_warning"], board="itself",
        ),
        Alert(
            "OomcastOverCpuBudget", "warning", "oomcast", "itself", f"{cpu} > {c.value('own_cpu')}",
            "oomcast on <node> takes {{ $value | humanizePercentage }} of a core",
            "oomcast on <node> takes {{ $value | humanizePercentage }} of a core, its budget is 3.5 % with ten"
            " engines. Next: the board shows which collector runs longest; raise its interval.",
            "Longer than a burst that is sampled faster.",
            hold=c.limits["own_hold"], keep=c.limits["keep_warning"], board="itself",
        ),
        Alert(
            "OomcastSeriesDropped", "warning", "oomcast", "itself",
            f"max {c.by('metric')} ({c.of('oomcast_series_dropped')}) > 0",
            "oomcast on <node> leaves out {{ $value | humanize }} series of {{ $labels.metric }}",
            "{{ $labels.metric }} on <node> has more series than its cap. Next: let its collector select less.",
            "A cap that is met for a moment is what it is for.",
            hold=c.limits["own_hold"], keep=c.limits["keep_warning"], board="itself",
        ),
        Alert(
            "OomcastCgroupsLeftOut", "warning", "oomcast", "itself",
            f"max {c.by()} ({c.of('oomcast_cgroup_truncated')}) > 0",
            "oomcast on <node> does not watch {{ $value | humanize }} cgroups",
            "<node> has {{ $value | humanize }} cgroups more than oomcast may watch; the deepest are left out, and an"
            " engine may be among them. Next: raise max_cgroups, or select fewer.",
            "Cgroups that come and go in a flood do not stay.",
            hold=c.limits["own_hold"], keep=c.limits["keep_warning"], board="itself",
        ),
        Alert(
            "OomcastRestarting", "warning", "oomcast", "itself", f"max {c.by()} ({starts}) >= {c.value('restarts')}",
            f"oomcast on <node> restarted {{{{ $value | humanize }}}} times in {c.said('kills_window')}",
            "oomcast on <node> keeps starting anew; forecasts need half a minute each time. Next: its log, and whether"
            " it was killed for want of memory itself.",
            "Once or twice is an update.",
            keep=c.limits["keep_warning"], board="itself",
        ),
    )  # fmt: skip
