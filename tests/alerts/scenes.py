"""Scenes for the tests of who is told: the labels of alerts that fire together, each scene in a cluster of its own."""

Labels = dict[str, str]


def critical(alertname: str, node: str = "", **labels: str) -> Labels:
    return _labels(alertname, "critical", node, labels)


def warning(alertname: str, node: str = "", **labels: str) -> Labels:
    return _labels(alertname, "warning", node, labels)


def info(alertname: str, node: str = "", **labels: str) -> Labels:
    return _labels(alertname, "info", node, labels)


def _labels(alertname: str, severity: str, node: str, labels: Labels) -> Labels:
    every = {"alertname": f"Oomcast{alertname}", "severity": severity, "phase": "fact", "node": node, **labels}
    return {key: value for key, value in every.items() if value}


FORECAST = {"phase": "forecast"}
SYMPTOM = {"phase": "symptom"}
ITSELF = {"phase": "itself"}
CGROUP = {"resource": "cgroup_memory", **FORECAST}
GPU = {"resource": "gpu_memory", **FORECAST}
SUDDEN = {"audience": "automation", **FORECAST}

FIRING: dict[str, list[Labels]] = {
    "ten": [critical(f"Fact{number}", "a") for number in range(10)],
    "two": [critical("EngineDown", "a", engine="x"), critical("EngineDown", "b", engine="x")],
    "spanning": [critical("EngineDown", node, engine="x", engine_group="g") for node in ("a", "b", "c")],
    "known": [
        critical("GpuExhaustion", "a", engine="x", **GPU),
        critical("HitRateCollapse", "a", engine="x", **SYMPTOM),
        warning("QueuePileUp", "a", engine="x", **SYMPTOM),
        critical("EngineKilled", "a", owner="o"),
        warning("OomKill", "a", owner="o", limit_owner="o"),
        warning("SloRisk", "a", engine="x", **FORECAST),
        critical("HitRateCollapse", "b", engine="x", **SYMPTOM),
        warning("QueuePileUp", "b", engine="x", **SYMPTOM),
    ],
    "only-warned": [
        warning("GpuExhaustion", "a", engine="x", **GPU),
        critical("HitRateCollapse", "a", engine="x", **SYMPTOM),
    ],
    "sudden": [
        warning("ExhaustionSudden", "a", cgroup="/x", resource="cgroup_memory", **SUDDEN),
        critical("CgroupExhaustion", "a", cgroup="/x", **CGROUP),
        warning("ExhaustionSudden", "b", gpu="0", resource="gpu_memory", **SUDDEN),
        critical("GpuExhaustion", "b", engine="x", **GPU),
        critical("HostExhaustion", "b", resource="host_memory", **FORECAST),
        warning("ExhaustionSudden", "c", cgroup="/x", resource="cgroup_memory", **SUDDEN),
        critical("CgroupExhaustion", "c", cgroup="/y", **CGROUP),
        critical("HostExhaustion", "c", resource="host_memory", **FORECAST),
        critical("EngineKilled", "c", owner="o"),
        warning("ExhaustionSudden", "d", gpu="0", resource="gpu_memory", **SUDDEN),
        critical("GpuMemoryFull", "d", **SYMPTOM),
    ],
    "objects": [
        critical("CgroupExhaustion", "a", cgroup="/x", **CGROUP),
        warning("CgroupExhaustion", "a", cgroup="/x", **CGROUP),
        warning("CgroupExhaustion", "a", cgroup="/y", **CGROUP),
        warning("CgroupExhaustion", "b", cgroup="/x", **CGROUP),
        critical("EngineDown", "a", engine="x"),
        warning("EngineDown", "a", engine="x"),
        warning("EngineDown", "a", engine="y"),
        critical("HostExhaustion", "a", resource="host_memory", **FORECAST),
        warning("HostExhaustion", "a", resource="host_memory", **FORECAST),
        critical("Xid", "a", xid="79"),
        warning("Xid", "a", xid="48"),
        critical("SloBurn", "c", engine="x", objective="ttft", up_to="65536", **SYMPTOM),
        warning("SloBurn", "c", engine="x", objective="ttft", up_to="65536", **SYMPTOM),
        warning("SloBurn", "c", engine="x", objective="ttft", up_to="131072", **SYMPTOM),
    ],
    "no-node": [
        critical("GpuExhaustion", engine="x", **GPU),
        warning("GpuExhaustion", engine="x", **GPU),
        warning("QueuePileUp", engine="x", **SYMPTOM),
        critical("Down", **ITSELF),
        warning("TargetUnlabelled", instance="a:19128", **ITSELF),
    ],
    "down": [
        critical("Down", "a", **ITSELF),
        warning("CollectorDown", "a", collector="gpu", **ITSELF),
        warning("Stale", "a", collector="gpu", **ITSELF),
        warning("OomKill", "a", owner="o", limit_owner="o"),
        warning("CollectorDown", "b", collector="gpu", **ITSELF),
    ],
    "absent": [critical("Absent", **ITSELF), warning("NodeUncovered", "a", **ITSELF)],
    "uncovered": [warning("NodeUncovered", "a", **ITSELF)],
    "noted": [info("TenantOomKill", "a", owner="o", limit_owner="o")],
    "over": [critical("EngineDown", "a", engine="x"), critical("EngineDown", "a", engine="y")],
    "watchdog": [{"alertname": "OomcastWatchdog", "severity": "none", **ITSELF}],
}
OVER: dict[str, list[Labels]] = {
    "sudden": [alert for alert in FIRING["sudden"] if alert["alertname"] == "OomcastExhaustionSudden"],
    "over": FIRING["over"],
    "watchdog": FIRING["watchdog"],
}
"""What of that is over later."""
