"""Who holds the memory of each GPU: series of the largest and the fastest growing, events when it grew or came free."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from oomcast.contract import Context, Event
from oomcast.metric import Metric, Sample, Series
from oomcast_collectors.gpu.driver import ProcessMemory
from oomcast_collectors.gpu.growth import Growth, Step, remainder, total
from oomcast_collectors.gpu.holders import Holder, Holders, sums_by_pid
from oomcast_collectors.gpu.owners import Owners, Process
from oomcast_collectors.gpu.settings import GpuSettings
from oomcast_collectors.kernel_log.interpret import printable

_LEAST = 1 << 30
_ENDED_RATIO = 0.01
_LOADING_RATIO = 0.05
_GPUS = 64
_SERIES = 2000
_NOT_LISTED = "where, and while, the driver does not list the GPU's processes"


def _per_process(name: str, text: str, absent: str) -> Metric:
    labels = ("gpu", "pid", "process", "cgroup")
    return Metric(f"oomcast_gpu_process_memory_{name}", "gauge", text, labels, _SERIES, absent=absent)


def _per_gpu(name: str, text: str, absent: str = _NOT_LISTED) -> Metric:
    return Metric(f"oomcast_gpu_{name}", "gauge", text, ("gpu",), _GPUS, absent=absent)


MEMORY = _per_process(
    "bytes",
    "Memory that a process holds on the GPU, all MIG instances together: of the largest and of those that grew the most"
    " in step_seconds, as many of each as the setting processes says; oomcast_gpu_process_memory_other_bytes has the"
    " rest. process: its comm. cgroup: as in oomcast_cgroup_info. Neither is there if this /proc lacks the process.",
    f"{_NOT_LISTED}; where it does not tell the process' memory",
)
PEAK = _per_process(
    "peak_bytes",
    "Most memory that the process ever held on the GPU, from the driver's accounting; of those with"
    " oomcast_gpu_process_memory_bytes.",
    "while accounting mode is off, which is the default; with MIG",
)
OTHER = _per_gpu(
    "process_memory_other_bytes",
    "Memory of all processes on the GPU without an oomcast_gpu_process_memory_bytes of their own.",
    f"{_NOT_LISTED}; where there are no such processes",
)
UNATTRIBUTED = _per_gpu(
    "memory_unattributed_bytes",
    "Used memory that no process on the GPU's list holds: the driver's own, contexts that did not come free, processes"
    " that are hidden from us. Where oomcast_gpu_info says memory_api v1 the reserved is in it.",
    f"{_NOT_LISTED}; where used memory or that of any process is not known, or the processes have more than is used",
)
COUNT = _per_gpu("processes", "Processes on the GPU's list.")
UNRESOLVED = _per_gpu(
    "processes_unresolved",
    "Processes on the GPU's list that this /proc does not have: those of another PID namespace, or hidden ones.",
)
METRICS = (MEMORY, PEAK, OTHER, UNATTRIBUTED, COUNT, UNRESOLVED)


@dataclass(frozen=True, slots=True)
class _Published:
    samples: Sequence[Sample] = ()
    loading_since: float | None = None


@dataclass(slots=True)
class _Gpu:
    holders: Holders
    growth: Growth[Holder]
    looked: bool = False
    """Whether its processes were ever listed."""
    series: dict[Metric, Series] = field(default_factory=dict)


class Processes:
    """All GPUs of the node. update() and forget() are for one thread at a time, the others for any."""

    def __init__(self, settings: GpuSettings, context: Context) -> None:
        self._settings = settings
        self._clock = context.clock
        self._owners = Owners(context)
        self._gpus: dict[str, _Gpu] = {}
        self._published: Mapping[str, _Published] = {}

    def update(
        self,
        gpu: str,
        used: int | None,
        usable: int | None,
        processes: Sequence[ProcessMemory] | None,
        accounting: Mapping[int, int],
        at: float,
    ) -> list[Event]:
        """Takes a reading of a GPU, by uuid; returns what happened since the last one.

        used, usable: bytes, None where not known. processes: None where the driver does not tell this time: the series
        go, what is known stays. accounting: peaks in bytes by pid, empty where the mode is off. at: monotonic seconds.
        """
        state = self._gpus.get(gpu) or self._add(gpu)
        least = None if usable is None else max(self._settings.step_ratio * usable, _LEAST)
        if processes is None:
            self._publish(gpu, _Published((), self.loading_since(gpu)))
            step = state.growth.add(at, used, None, least)
            return [self._grew(gpu, step, at)] if step else []
        sums = sums_by_pid(processes)
        gone = state.holders.renew(sums, self._owners.process, at)
        self._owners.keep({pid for one in self._gpus.values() for pid in one.holders.all})
        holders = state.holders.all.values()
        if not state.looked:
            state.looked = True
            for holder in holders:  # they were here before us
                holder.since -= self._owners.age(holder.process)
        shares = {holder: holder.used for holder in holders}
        step = state.growth.add(at, used, shares, least)
        state.holders.choose(state.growth.grown(shares))
        samples = self._samples(gpu, state, used, sums, accounting)
        self._publish(gpu, _Published(samples, _loading_since(state.holders, usable)))
        events = [self._grew(gpu, step, at)] if step else []
        large = [one for one in gone if one.largest >= max(_ENDED_RATIO * (usable or 0), _LEAST)]
        return events + [self._ended(gpu, one, accounting.get(one.process.pid, 0), at) for one in large]

    def forget(self, gpu: str) -> None:
        """The GPU is gone: so are its series, and nothing of it is known any more."""
        self._gpus.pop(gpu, None)
        self._published = {uuid: published for uuid, published in self._published.items() if uuid != gpu}

    def samples(self, silent: Container[str] = ()) -> list[Sample]:
        """Those of all GPUs, as of their last update; not of those in `silent`, for which it is too long ago."""
        return [s for gpu, published in self._published.items() if gpu not in silent for s in published.samples]

    def loading_since(self, gpu: str) -> float | None:
        """When the newest process came that holds at least 5 % of the GPU's usable memory, monotonic seconds; of one
        that was there at the first look, when it started. None without one."""
        published = self._published.get(gpu)
        return published.loading_since if published else None

    def _add(self, gpu: str) -> _Gpu:
        settings = self._settings
        state = self._gpus[gpu] = _Gpu(Holders(settings.processes), Growth(settings.step_seconds))
        for metric in (OTHER, UNATTRIBUTED, COUNT, UNRESOLVED):
            state.series[metric] = metric.series(gpu)
        return state

    def _publish(self, gpu: str, published: _Published) -> None:
        self._published = {**self._published, gpu: published}

    def _samples(
        self,
        gpu: str,
        state: _Gpu,
        used: int | None,
        sums: Mapping[int, int | None],
        accounting: Mapping[int, int],
    ) -> list[Sample]:
        holders, series = state.holders, state.series
        unresolved = sum(holder.process.start is None for holder in holders.all.values())
        samples = [Sample(series[COUNT], len(sums)), Sample(series[UNRESOLVED], unresolved)]
        others = {pid: value for pid, value in sums.items() if value is not None}
        for holder in sorted(holders.shown, key=lambda holder: holder.process.pid):
            pid = holder.process.pid
            memory, peak = holder.series(lambda process: _series(gpu, process))
            value = others.pop(pid)
            samples.append(Sample(memory, value))
            if pid in accounting:
                samples.append(Sample(peak, max(accounting[pid], holder.largest)))
        if others:
            samples.append(Sample(series[OTHER], sum(others.values())))
        held = total(sums.values())
        rest = remainder(used, held, used) if used is not None and held is not None else None
        if rest is not None:
            samples.append(Sample(series[UNATTRIBUTED], rest))
        return samples

    def _grew(self, gpu: str, step: Step[Holder], at: float) -> Event:
        fields: dict[str, str | int | float] = {"gpu": gpu, "bytes": step.bytes, "seconds": round(step.seconds, 3)}
        summary = f"{_short(gpu)} grew {_size(step.bytes)} in {step.seconds:.0f} s"
        if step.by is not None:
            who, described = self._who(step.by.process)
            fields |= {**described, "process_bytes": step.share}
            summary += f", {who} by {_size(step.share)}"
        if step.unattributed is not None:
            fields["unattributed_bytes"] = step.unattributed
        return self._event("gpu_memory_step", at, summary, fields)

    def _ended(self, gpu: str, holder: Holder, peak: int, at: float) -> Event:
        who, described = self._who(holder.process)
        held, peak = holder.used or 0, max(holder.largest, peak)
        fields: dict[str, str | int | float] = {"gpu": gpu, **described, "bytes": held, "peak_bytes": peak}
        alive = self._owners.alive(holder.process)
        if alive is not None:
            fields["alive"] = int(alive)
        how = {True: "released all memory of", False: "ended on", None: "is no longer on"}[alive]
        summary = f"{who} {how} {_short(gpu)}: it held {_size(held)}, {_size(peak)} at most"
        return self._event("gpu_process_ended", at, summary, fields)

    def _who(self, process: Process) -> tuple[str, Mapping[str, str | int]]:
        owner = self._owners.owner(process)
        named = {"process": process.name, "cgroup": process.cgroup, "owner": owner}
        text = f"{process.name} (pid {process.pid})" if process.name else f"pid {process.pid}"
        return f"{text} in {owner}" if owner else text, {"pid": process.pid} | {k: v for k, v in named.items() if v}

    def _event(self, kind: str, at: float, summary: str, fields: Mapping[str, str | int | float]) -> Event:
        time = self._clock.time() - (self._clock.monotonic() - at)
        return Event(kind, time, at, printable(summary), fields)


def _loading_since(holders: Holders, usable: int | None) -> float | None:
    if not usable:
        return None
    large = (one.since for one in holders.all.values() if (one.used or 0) >= _LOADING_RATIO * usable)
    return max(large, default=None)


def _series(gpu: str, process: Process) -> tuple[Series, ...]:
    values = (gpu, str(process.pid), process.name, process.cgroup)
    return MEMORY.series_of(values), PEAK.series_of(values)


def _short(gpu: str) -> str:
    """GPU-7f3a1b2c, the way a long uuid is told apart in a sentence."""
    return "-".join(gpu.split("-")[:2])


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
