"""The host: its memory and swap, what the kernel counts about reclaim and OOM kills, and the serving processes."""

import os
from typing import Annotated

from pydantic import Field

from oomcast.contract import CollectorSettings, CollectorSpec, Context, Event, Facts
from oomcast.metric import Sample
from oomcast_collectors.host import counters, memory, serving, troubles, usage
from oomcast_collectors.host.aside import Aside
from oomcast_collectors.host.files import KeptFile, Parsed, read_once
from oomcast_collectors.host.processes import Found, ProcessFinder
from oomcast_collectors.host.troubles import KEPT, Troubles
from oomcast_collectors.host.usage import ProcessUsage

__all__ = ["METRICS", "SPEC", "Found", "HostCollector", "HostSettings", "ProcessFinder"]

_ZONEINFO_PERIOD = 60.0
# One paragraph per CPU and zone: 400 kB on a host with 8 nodes and 384 CPUs.
_ZONEINFO_LIMIT = 8 << 20
_SCAN_WAIT = 1.0


class HostSettings(CollectorSettings):
    processes: tuple[str, ...] = Field((), description="glob patterns of more process names, beside `serving`")
    units: tuple[str, ...] = Field((), description="systemd units whose processes are serving processes")
    process_interval: Annotated[float, Field(ge=1, le=3600)] = Field(
        10.0, description="seconds between two looks at the processes"
    )
    process_names: Annotated[int, Field(ge=1, le=200)] = Field(
        20, description="names of processes with series of their own; the largest are kept"
    )


class HostCollector:
    """The facts of one host. Only /proc/meminfo has to be readable: without it a run fails."""

    def __init__(self, settings: HostSettings, context: Context) -> None:
        self._settings = settings
        self._clock = context.clock
        self._proc = context.roots.proc
        self._files = {file: KeptFile(self._proc / file) for file in KEPT}
        self._troubles = Troubles(context.log, context.clock.time())
        self._counters = counters.Counters(context.log)
        self._memory = memory.MemorySamples()
        self._page = os.sysconf("SC_PAGE_SIZE")
        # The kernel's per-CPU counters may be this much behind.
        self._noise = max(64 * self._page * (os.cpu_count() or 1), 4 << 20)
        self._low = 0
        self._next_zoneinfo = self._next_scan = context.clock.monotonic()
        self._kills: int | None = None
        self._scan: Aside | None = None
        self._process_samples: list[Sample] = []
        patterns = (*context.serving, *settings.processes)
        self._usage: ProcessUsage | None = None
        if any(patterns) or any(settings.units):
            finder = ProcessFinder(context.roots, patterns, settings.units)
            starts = serving.ServingStarts(context)
            self._usage = ProcessUsage(context.roots, finder, starts, context.clock, settings.process_names)

    def collect(self) -> Facts:
        facts = Facts()
        # First, as this alone may fail the run, which must not lose an OOM kill that was already noted.
        self._collect_memory(facts)
        self._collect_vmstat(facts)
        for resource in counters.RESOURCES:
            pressure = self._read(f"pressure/{resource}")
            if pressure is not None:
                facts.samples += self._counters.pressure(resource, pressure.values)
        if self._usage is not None:
            self._collect_processes(self._usage)
            facts.samples += self._process_samples
        facts.samples += self._troubles.samples()
        return facts

    def _collect_memory(self, facts: Facts) -> None:
        file = self._files["meminfo"]
        try:
            parsed = memory.parse_meminfo(file.read())
        except OSError as error:
            self._troubles.unreadable("meminfo", error)
            raise
        level = memory.host_level(parsed.values, self._low_watermark(), self._noise)
        malformed = parsed.malformed
        if level is not None:
            facts.levels.append(level)
        elif {"MemTotal", "MemAvailable"} <= parsed.values.keys():
            malformed |= {"MemTotal contradicts others"}
        self._troubles.parsed("meminfo", malformed)
        if not parsed.values:
            raise ValueError(f"{file.path} has none of the fields that it should have")
        facts.samples += self._memory(parsed.values)

    def _low_watermark(self) -> int:
        """Bytes below which the kernel starts to reclaim; an administrator may change it, so it is read again."""
        now = self._clock.monotonic()
        if now >= self._next_zoneinfo:
            self._next_zoneinfo = now + _ZONEINFO_PERIOD
            try:
                pages = memory.parse_low_watermark(KeptFile(self._proc / "zoneinfo", _ZONEINFO_LIMIT).read())
            except OSError as error:
                self._troubles.unreadable("zoneinfo", error)
                pages = None
            else:
                self._troubles.parsed("zoneinfo", frozenset() if pages is not None else frozenset({"low"}))
            self._low = 0 if pages is None else pages * self._page
        return self._low

    def _collect_vmstat(self, facts: Facts) -> None:
        if self._counters.created is None:
            self._counters.created = self._boot_time()
        vmstat = self._read("vmstat")
        if vmstat is None:
            return
        facts.samples += self._counters.vmstat(vmstat.values)
        kills = vmstat.values.get("oom_kill")
        if kills is None:
            return
        if self._kills is not None and kills > self._kills:
            facts.events.append(self._killed(kills - self._kills))
        self._kills = kills

    def _killed(self, kills: int) -> Event:
        processes = "1 process" if kills == 1 else f"{kills} processes"
        return Event(
            "host_oom_kills",
            self._clock.time(),
            self._clock.monotonic(),
            f"the OOM killer killed {processes} since the last look at /proc/vmstat",
            {"kills": kills},
        )

    def _boot_time(self) -> float | None:
        try:
            return self._clock.time() - float(read_once(os.fspath(self._proc / "uptime"), 64).split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def _read(self, file: str) -> Parsed | None:
        """A file that the host can do without; None if it cannot be read."""
        parse = counters.parse_vmstat if file == "vmstat" else counters.parse_pressure
        try:
            parsed = parse(self._files[file].read())
        except OSError as error:
            self._troubles.unreadable(file, error)
            return None
        self._troubles.parsed(file, parsed.malformed)
        return parsed

    def _collect_processes(self, scanner: ProcessUsage) -> None:
        now = self._clock.monotonic()
        wait = 0.0
        if self._scan is None:
            if now < self._next_scan:
                return
            self._next_scan = now + self._settings.process_interval
            self._scan = Aside(scanner, now)
            wait = min(_SCAN_WAIT, self._settings.timeout / 2)
        outcome = self._scan.outcome(wait)
        self._process_samples = []
        if outcome is None:
            if now >= self._scan.started + self._settings.timeout:
                self._troubles.unreadable("status", TimeoutError("the processes are still being read"))
            return
        self._scan = None
        if isinstance(outcome, Exception):
            self._troubles.unreadable("status", outcome)
        else:
            self._troubles.parsed("status", outcome.malformed)
            self._process_samples = outcome.samples


METRICS = (*(row.metric for row in memory.ROWS), *counters.METRICS, *usage.METRICS, serving.START, *troubles.METRICS)

SPEC = CollectorSpec(
    name="host",
    help="memory, swap, pressure and OOM kills of the host, and the memory and age of its serving processes",
    settings=HostSettings,
    metrics=METRICS,
    create=HostCollector,
)
