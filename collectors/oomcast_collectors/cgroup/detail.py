"""The full tier: everything else the kernel says about one cgroup."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.cgroup import metrics
from oomcast_collectors.cgroup.files import GONE, UNSUPPORTED, Budget, File
from oomcast_collectors.cgroup.node import Node
from oomcast_collectors.cgroup.stat import limit, number, pressure, table
from oomcast_collectors.membership import LARGEST, unified_cgroup

_KINDS = (
    "anon", "file", "shmem", "file_mapped", "file_dirty", "file_writeback", "active_file", "inactive_file",
    "unevictable", "kernel", "slab_reclaimable", "slab_unreclaimable", "sock", "pagetables", "percpu",
)  # fmt: skip
_KINDS_V1 = {
    "anon": "total_rss", "file": "total_cache", "shmem": "total_shmem", "file_mapped": "total_mapped_file",
    "file_dirty": "total_dirty", "file_writeback": "total_writeback", "active_file": "total_active_file",
    "inactive_file": "total_inactive_file", "unevictable": "total_unevictable",
}  # fmt: skip
_REFAULTS = {
    "anon": "workingset_refault_anon",
    "file": "workingset_refault_file",
    "all": "workingset_refault",
}
_Single = tuple[str, Metric, Callable[[bytes], int | None]]
_SINGLES_V2: tuple[_Single, ...] = (("memory.high", metrics.HIGH, limit), ("memory.swap.current", metrics.SWAP, number))
_SINGLES_V1: tuple[_Single, ...] = (("memory.failcnt", metrics.LIMIT_HITS, number),)


class Detail:
    """The additional files of a node. pressure: the directory with its PSI files, None where there is none."""

    def __init__(self, node: Node, version: int, pressure_directory: str | None, budget: Budget) -> None:
        self._node = node
        self._version = version
        self._series: dict[tuple[Metric, tuple[str, ...]], Series] = {}
        self._files: dict[str, File] = {}
        for name, _, _ in _SINGLES_V2 if version == 2 else _SINGLES_V1:
            self._files[name] = File(node.directory, name, budget, 32)
        if version == 2:
            self._files["cgroup.stat"] = File(node.directory, "cgroup.stat", budget)
        if pressure_directory:
            for resource in ("cpu", "memory", "io"):
                self._files[f"{resource}.pressure"] = File(pressure_directory, f"{resource}.pressure", budget)

    def collect(self) -> Iterator[Sample]:
        """Samples of this moment; the node has just been read. Raises OSError or Malformed."""
        texts = {name: text for name, file in list(self._files.items()) if (text := self._read(name, file)) is not None}
        stat = table(self._node.stat_text) if self._node.stat_text else {}
        if self._version == 2:
            yield from self._v2(stat, texts)
        else:
            yield from self._v1(stat)
        for name, metric, parse in _SINGLES_V2 if self._version == 2 else _SINGLES_V1:
            if name in texts and (value := parse(texts[name])) is not None:
                yield self._sample(metric, value)
        for resource in ("cpu", "memory", "io"):
            text = texts.get(f"{resource}.pressure")
            for kind, seconds in pressure(text).items() if text is not None else ():
                yield self._sample(metrics.PRESSURE, seconds, resource, kind)
        own = self._node.reading and self._node.reading.limit
        if own is not None:
            yield self._sample(metrics.MAX, own)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _v2(self, stat: Mapping[str, int], texts: Mapping[str, bytes]) -> Iterator[Sample]:
        for kind in _KINDS:
            if kind in stat:
                yield self._sample(metrics.STAT, stat[kind], kind)
        yield from self._refaults(stat, "")
        for kind in ("scan", "steal"):
            if f"pg{kind}" in stat:
                yield self._sample(metrics.PAGES, stat[f"pg{kind}"], kind)
        events = table(self._node.events_text) if self._node.events_text else {}
        if "max" in events:
            yield self._sample(metrics.LIMIT_HITS, events["max"])
        if "high" in events:
            yield self._sample(metrics.HIGH_HITS, events["high"])
        descendants = table(texts["cgroup.stat"]) if "cgroup.stat" in texts else {}
        if "nr_dying_descendants" in descendants:
            yield self._sample(metrics.DYING, descendants["nr_dying_descendants"])

    def _v1(self, stat: Mapping[str, int]) -> Iterator[Sample]:
        for kind, key in _KINDS_V1.items():
            if key in stat:
                yield self._sample(metrics.STAT, stat[key], kind)
        yield from self._refaults(stat, "total_")
        if "total_swap" in stat:
            yield self._sample(metrics.SWAP, stat["total_swap"])
        for direction in ("in", "out"):
            if f"total_pgpg{direction}" in stat:
                yield self._sample(metrics.CHARGES, stat[f"total_pgpg{direction}"], direction)

    def _refaults(self, stat: Mapping[str, int], prefix: str) -> Iterator[Sample]:
        for kind, key in _REFAULTS.items():
            if prefix + key in stat:
                yield self._sample(metrics.REFAULTS, stat[prefix + key], kind)

    def _read(self, name: str, file: File) -> bytes | None:
        try:
            return file.read()
        except OSError as error:
            # PSI that is compiled in but off opens and cannot be read; a file may be unknown to this kernel.
            if error.errno not in GONE + UNSUPPORTED:
                raise
            self._files.pop(name).close()
            return None

    def _sample(self, metric: Metric, value: float, *labels: str) -> Sample:
        key = (metric, labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = metric.series(self._node.path, *labels)
        return Sample(series, value)


def pressure_directory(node: Node, memory_version: int, unified: str | None, proc: Path) -> str | None:
    """Where the PSI files of this cgroup are: with it on v2; on v1 in a cgroup2 mount, under the same path or under
    the one that the first process of the cgroup has there."""
    if memory_version == 2:
        return node.directory
    if unified is None or node.path == "/":
        return None
    same = Path(unified + node.path)
    if same.is_dir():
        return str(same)
    path = _unified_path(Path(node.directory), proc)
    # In its root are all who were never put elsewhere: their pressure is the host's, not this cgroup's.
    other = Path(unified + path) if path not in ("", "/") else None
    return str(other) if other and other.is_dir() else None


def _unified_path(directory: Path, proc: Path) -> str:
    try:
        with (directory / "cgroup.procs").open("rb") as file:
            pid = file.readline(32).strip()
        if not pid.isdigit():
            return ""
        with (proc / pid.decode() / "cgroup").open("rb") as file:
            path = unified_cgroup(file.read(LARGEST))
    except OSError:
        return ""
    return "" if "/.." in path else path
