"""A cgroup collector over a copied host, run by hand, and cgroups of exact values to put there."""

import logging
from pathlib import Path

from collectors.cgroup import trees
from fakes import FakeClock
from oomcast.contract import Context, Event, Facts, Level, Roots
from oomcast.exposition import Exposition
from oomcast.metric import Sample
from oomcast.store import Store
from oomcast_collectors.cgroup import CgroupCollector, CgroupSettings
from oomcast_collectors.cgroup.metrics import METRICS

MIB = 1 << 20
LOG = logging.getLogger("oomcast.cgroup")


class Bench:
    """run() advances the clock by a second and collects; what it found stays in `facts`."""

    def __init__(self, host: trees.Host, *, serving: tuple[str, ...] = (), **settings: object) -> None:
        self.clock = FakeClock()
        self.pushed: list[Facts] = []
        self.facts = Facts()
        roots = Roots(proc=host.proc, sys=host.sys, pods=host.pods, host=host.root)
        context = Context(roots, self.clock, LOG, self.pushed.append, serving)
        self.collector = CgroupCollector(CgroupSettings.model_validate(settings), context)

    def run(self, seconds: float = 1) -> "Bench":
        self.clock.advance(seconds)
        self.facts = self.collector.collect()
        return self

    def close(self) -> None:
        self.collector.stop(self.clock.monotonic())

    def value(self, name: str, cgroup: str = "") -> object:
        """The value of the one series of oomcast_cgroup_<name> that the cgroup has; None without one."""
        found = [sample.value for sample in self.samples(name, cgroup)]
        assert len(found) < 2
        return found[0] if found else None

    def samples(self, name: str, cgroup: str = "") -> list[Sample]:
        found = [s for s in self.facts.samples if s.series.metric.name == f"oomcast_cgroup_{name}"]
        return [s for s in found if dict(s.series.labels).get("cgroup", "") == cgroup]

    def labelled(self, name: str, cgroup: str, label: str) -> dict[str, object]:
        """The values of one cgroup's series by another label."""
        return {dict(s.series.labels)[label]: s.value for s in self.samples(name, cgroup)}

    def info(self, cgroup: str) -> dict[str, str]:
        labels = dict(self.samples("info", cgroup)[0].series.labels)
        del labels["cgroup"]
        return labels

    def shown(self) -> set[str]:
        """The cgroups that have an info series."""
        return {dict(s.series.labels)["cgroup"] for s in self.facts.samples if "_info" in s.series.metric.name}

    def level(self, cgroup: str) -> Level:
        (found,) = [level for level in self.facts.levels if level.labels == (("cgroup", cgroup),)]
        return found

    def levelled(self) -> set[str]:
        """The cgroups that have a level."""
        return {level.labels[0][1] for level in self.facts.levels}

    def events(self, kind: str = "cgroup_oom_kills") -> list[Event]:
        return [event for event in self.facts.events if event.kind == kind]

    def text(self) -> str:
        """What a scrape would say."""
        store = Store(METRICS)
        store.put("cgroup", self.facts.samples)
        return b"".join(Exposition(store).render(False, False)).decode()


def v2(
    *,
    used: int = MIB,
    anon: int = 0,
    file: int = 0,
    slab: int = 0,
    kills: int = 0,
    faults: int = 0,
    limit: object = "max",
) -> dict[str, str]:
    """The core files of a cgroup; file: pages on the evictable lists. Sizes in bytes."""
    stat = {"anon": anon, "file": file, "shmem": 0, "inactive_file": file, "active_file": 0, "slab_reclaimable": slab}
    return {
        "memory.current": f"{used}\n",
        "memory.stat": keyed({**stat, "workingset_refault_file": 7, "pgscan": 30, "pgsteal": 20, "pgmajfault": faults}),
        "memory.events": keyed({"low": 0, "high": 4, "max": 3, "oom": kills, "oom_kill": kills}),
        "memory.max": f"{limit}\n",
    }


def v1(
    *, used: int = MIB, rss: int = 0, cache: int = 0, kills: int = 0, faults: int = 0, limit: int = 1 << 63, **stat: int
) -> dict[str, str]:
    """The same of a v1 cgroup. stat: more lines of memory.stat, or other values of those that it has."""
    lines = {
        "cache": 0,
        "rss": 0,
        "hierarchical_memory_limit": limit,
        "total_rss": rss,
        "total_shmem": 0,
        "total_pgmajfault": faults,
        "total_inactive_file": cache,
        "total_active_file": 0,
    }
    return {
        "memory.usage_in_bytes": f"{used}\n",
        "memory.stat": keyed(lines | stat),
        "memory.oom_control": keyed({"oom_kill_disable": 0, "under_oom": 0, "oom_kill": kills}),
        "memory.limit_in_bytes": f"{limit}\n",
    }


def keyed(values: dict[str, int]) -> str:
    return "".join(f"{key} {value}\n" for key, value in values.items())


def swaps(host: trees.Host, total: int, used: int) -> None:
    """Gives the host one swap area; sizes in bytes."""
    line = f"/dev/dm-1 partition {total // 1024} {used // 1024} -2\n"
    (host.proc / "swaps").write_text("Filename Type Size Used Priority\n" + line)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
