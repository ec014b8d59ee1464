"""Programs in the kernel: who allocates and does not free, who crashed and where, whom the OOM killer took.

They are held by a child process, as BCC is large and could take the daemon down with it. Off unless switched on.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from oomcast.contract import CollectorSpec, Context, Event, Facts, NotPresent, Tried
from oomcast.metric import Sample
from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.description import DescriptionError, read
from oomcast_collectors.ebpf.machine import missing
from oomcast_collectors.ebpf.privileges import lacking_for_programs
from oomcast_collectors.ebpf.question import ask
from oomcast_collectors.ebpf.settings import EbpfSettings
from oomcast_collectors.ebpf.supervisor import Supervisor
from oomcast_collectors.ebpf.wire import Absent, Checked, Failed, Log, Order

__all__ = ["SPEC", "EbpfCollector", "EbpfSettings"]

_PATIENCE = 2.0
_SILENT, _SILENT_AT_FIRST = 10.0, 60.0
_CHECK_SECONDS = 120.0
"""Of silence, after which the rest is not waited for."""


class EbpfError(Exception):
    """The child has ended, or says nothing any more."""


class EbpfCollector:
    """A Watcher. A run publishes what the child last told."""

    def __init__(self, settings: EbpfSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._created = context.clock.time()
        self._supervisor: Supervisor | None = None
        self._lacking = ""
        self._resident = metrics.CHILD_RESIDENT.series()
        self._starts = metrics.CHILD_STARTS.series()

    def start(self) -> None:
        # Once: each look tries system calls, and what audits those that are refused would have one a second.
        self._lacking = missing()
        if self._lacking:
            return
        settings, context = self._settings, self._context
        refused = _for_programs(settings)
        lacking = lacking_for_programs() if refused else ""
        if lacking and refused == settings.probes:
            self._lacking = f"{', '.join(refused)}: {lacking}"
            return
        if lacking:
            context.log.warning("not loaded: %s: %s", ", ".join(refused), lacking)
        told = order(settings, context)
        self._supervisor = Supervisor(told, context.clock, context.log, self._push)
        self._supervisor.start()

    def stop(self, deadline: float) -> None:
        if self._supervisor is not None:
            self._supervisor.stop(deadline)

    def collect(self) -> Facts:
        """Raises NotPresent where there can be no programs in the kernel, EbpfError while there is no child to tell."""
        supervisor = self._supervisor
        if supervisor is None:
            raise NotPresent(self._lacking or "the collector is stopped")
        # The first report takes as long as the compiler does.
        reported = supervisor.wait(_PATIENCE)
        if supervisor.absent:
            raise NotPresent(supervisor.absent)
        if supervisor.ended:
            raise EbpfError(f"the eBPF child ended: {supervisor.ended}")
        silent = self._context.clock.monotonic() - supervisor.heard
        if silent > (_SILENT if reported else _SILENT_AT_FIRST):
            raise EbpfError(f"the eBPF child has said nothing for {silent:.0f} s")
        with supervisor.locked():
            samples = supervisor.totals.samples()
        samples.append(Sample(self._starts, supervisor.starts, self._created))
        if (resident := _resident(supervisor.pid)) is not None:
            samples.append(Sample(self._resident, resident))
        return Facts(samples=samples)

    def _push(self, event: Event) -> None:
        self._context.push(Facts(events=[event]))


def _for_programs(settings: EbpfSettings) -> tuple[str, ...]:
    """The probes that go into functions of programs; what cannot be read is for the child to tell of."""
    found = []
    for name in settings.probes:
        with contextlib.suppress(DescriptionError):
            if read(name, settings.folder)[0].uprobes:
                found.append(name)
    return tuple(found)


def order(settings: EbpfSettings, context: Context, *, check: bool = False) -> Order:
    roots = context.roots
    return Order(settings.model_dump(mode="json"), context.serving, check, str(roots.proc), str(roots.pods))


def check(settings: EbpfSettings, context: Context) -> Iterator[Tried]:
    """Compiles, loads, attaches and detaches every configured probe, a line each."""
    if reason := missing():
        yield False, reason
        return
    waiting = list(settings.probes)
    try:
        for message in ask(order(settings, context, check=True), context.clock, _CHECK_SECONDS):
            match message:
                case Checked(probe, fine, said) if probe in waiting:
                    waiting.remove(probe)
                    yield fine, f"{probe}: {said}"
                case Absent(reason) | Failed(reason):
                    yield False, reason
                    return
                case Log(_, text):
                    yield True, text
                case _:
                    raise ValueError(f"not to be said in a check: {message!r:.100}")
    except ValueError as error:
        yield False, f"the child said something else than a message: {error}"
    for probe in waiting:
        yield False, f"{probe}: the child ended, or said nothing any more, before it was tried"


def _resident(pid: int | None) -> int | None:
    """Bytes, from our own /proc, as the pid is ours."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * 4096


SPEC = CollectorSpec(
    name="ebpf",
    help="allocations, crashes, OOM victims and faults of processes, by programs in the kernel (BCC); off by default",
    settings=EbpfSettings,
    metrics=metrics.METRICS,
    create=EbpfCollector,
    trial=check,
)
