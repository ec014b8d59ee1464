"""Five incidents and six harmless nodes, watched by what is shipped: played once, and what came of it."""

import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from cgroups import parent
from e2e.incident_stack import watching
from e2e.stack import Message, Page, fetch
from fleet import Member, Spec, drawn, fleet
from fleet.spec import Play
from requires import missing

FACTOR = 30.0
SEED = int(os.environ.get("OOMCAST_SEED") or random.SystemRandom().randrange(1_000_000))
SEEDS = random.Random(SEED).sample(range(1_000_000), 5)
POSITIVE = tuple(f"n{number}" for number in range(1, 6))
HARMLESS: tuple[Play, ...] = ("healthy", "no_reuse", "restart", "load", "pool")

GRACE, HIT_WINDOW = 600 / FACTOR, 300 / FACTOR
"""Settings of the daemon whose defaults are durations that alerts rely on, divided like them."""

MOST = 125.0
"""Seconds within which it is all over."""

EVIDENCE = {
    "used": "max by (node) (max_over_time(oomcast_gpu_memory_used_bytes[10m]))",
    "usable": "max by (node) (oomcast_gpu_memory_total_bytes - oomcast_gpu_memory_reserved_bytes)",
    "pool": "max by (node) (max_over_time(oomcast_kv_cache_usage_ratio[10m]))",
    "best hits": "max by (node) (max_over_time(oomcast_kv_cache_hit_ratio[10m]))",
    "up": "max by (node) (oomcast_engine_up)",
    "restarts": "max by (node) (oomcast_engine_restarts_total)",
    "cgroup used": "max by (node) (max_over_time(oomcast_cgroup_memory_used_bytes[10m]))",
    "cgroup of an engine": "count by (node) (cgroup:oomcast_serving_start_timestamp_seconds:max)",
    "cgroup forecast": 'count by (node) (oomcast_time_to_exhaustion_seconds{resource="cgroup_memory"})',
    "gpu forecasts": 'count by (node) (oomcast_time_to_exhaustion_seconds{resource="gpu_memory"})',
}
"""Queries for what makes a harmless node look like trouble, or shows that it was watched."""

CACHE_LIMIT = 256 << 20
"""Bytes."""


class Past(NamedTuple):
    """began: monotonic. moments: of each node. messages: by version of Prometheus. fired: symptoms that Prometheus had
    firing, (node, alert), by version. seen: answers to EVIDENCE, by version and query, of each node that has one."""

    began: float
    moments: Mapping[str, Mapping[str, float]]
    messages: Mapping[str, Sequence[Message]]
    fired: Mapping[str, frozenset[tuple[str, str]]]
    seen: Mapping[tuple[str, str], Mapping[str, float]]

    def of(self, version: str, node: str, *paths: str) -> list[Page]:
        """Alerts of a node as they were sent to any of these receivers."""
        some = (message for message in self.messages[version] if message.path.strip("/") in paths)
        return [page for message in some for page in message.pages if page.labels.get("node") == node]

    def pages(self, version: str, node: str) -> list[Message]:
        """Messages to who is paged for a node."""
        every = [message for message in self.messages[version] if message.path == "/page"]
        return [message for message in every if message.group_labels.get("node") == node]

    def told(self, version: str, node: str) -> str:
        """What came when, in seconds: for who has to see why a test failed."""
        lines = [(at, f"-- {name}") for name, at in self.moments[node].items()]
        for message in self.messages[version]:
            for page in message.pages:
                if page.labels.get("node") == node:
                    says = page.annotations.get("summary", "")
                    name = f"{page.labels['alertname']} ({page.labels['severity']})"
                    lines.append((message.at, f"{message.path} {message.status}: {page.status} {name}: {says}"))
        text = "\n".join(f"{at - self.began:7.1f}  {line}" for at, line in sorted(lines))
        return f"\n{node}, Prometheus {version}, factor {FACTOR:g}, OOMCAST_SEED={SEED}\n{text}"


def play(directory: Path) -> Past:
    """All of it, in two minutes. Says what it plays, so that it can be played again."""
    print(f"factor {FACTOR:g}, OOMCAST_SEED={SEED}, seeds {SEEDS}")  # noqa: T201 - to play it again
    specs = [
        drawn(name, seed, load_grace=GRACE, hit_window=HIT_WINDOW) for name, seed in zip(POSITIVE, SEEDS, strict=True)
    ]
    specs += [harmless(one) for one in HARMLESS]
    with ExitStack() as running:
        if missing("cgroup") is None:
            cgroup = running.enter_context(parent("page-cache"))
            cgroup.limit(CACHE_LIMIT)
            specs.append(harmless("page_cache", str(cgroup.directory)))
        nodes = running.enter_context(fleet(directory, specs))
        daemons = {name: node.daemon for name, node in nodes.items()}
        watches = running.enter_context(watching(directory, daemons, FACTOR))
        nodes.begin()
        began = time.monotonic()
        hurt = [nodes[name] for name in POSITIVE]
        while time.monotonic() < began + MOST and not over(hurt, [watch.messages for watch in watches.values()]):
            time.sleep(0.5)
        print(f"over after {time.monotonic() - began:.0f} s of {MOST:.0f}")  # noqa: T201 - what was measured
        for node in nodes.values():
            assert node.log.read_text() == ""
        return Past(
            began,
            {name: dict(node.moments) for name, node in nodes.items()},
            {version: tuple(watch.messages) for version, watch in watches.items()},
            {version: symptoms(watch.prometheus) for version, watch in watches.items()},
            {
                (version, name): {one["node"]: value for one, value in answer(watch.prometheus, query)}
                for version, watch in watches.items() for name, query in EVIDENCE.items()
            },
        )  # fmt: skip


def harmless(what: Play, cgroup: str = "") -> Spec:
    """A node that is called like its play."""
    users = 6 if what == "pool" else 3
    return Spec(what, what, users=users, load_grace=GRACE, hit_window=HIT_WINDOW, cgroup=cgroup)


def over(nodes: Sequence[Member], every: Sequence[Sequence[Message]]) -> bool:
    """Whether all engines are back, and everybody who was paged was told so."""
    names = {node.spec.name for node in nodes}
    resolved = [
        {m.group_labels.get("node") for m in messages if m.path == "/page" and m.status == "resolved"}
        for messages in every
    ]
    return all("back" in node.moments for node in nodes) and all(names <= told for told in resolved)


def symptoms(prometheus: str) -> frozenset[tuple[str, str]]:
    """Node and name of those that Prometheus had firing, whoever was told."""
    query = 'count by (node, alertname) (count_over_time(ALERTS{alertstate="firing", phase="symptom"}[10m]))'
    return frozenset((labels["node"], labels["alertname"]) for labels, _ in answer(prometheus, query))


def answer(prometheus: str, query: str) -> list[tuple[dict[str, str], float]]:
    """The series that a query gives now, with their values."""
    said = json.loads(fetch(f"{prometheus}/api/v1/query?query={quote(query)}"))
    return [(one["metric"], float(one["value"][1])) for one in said["data"]["result"]]
