"""The GPUs as a dcgm-exporter on this node has them, where the driver's library cannot be used: the same series."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from oomcast.contract import Context, Event, Facts, Level, NotPresent
from oomcast.logs import OnChange
from oomcast.metric import Sample
from oomcast_collectors.gpu import metrics
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.dcgm import Dcgm, DcgmError, find
from oomcast_collectors.gpu.dcgm_quantities import DcgmMemory
from oomcast_collectors.gpu.dcgm_text import DcgmGpu, DcgmInstance
from oomcast_collectors.gpu.driver import DriverError, Field, Identity, Memory, Utilization
from oomcast_collectors.gpu.settings import GpuSettings
from oomcast_collectors.gpu.tell import Teller

_SEARCH = 30.0
"""Seconds between two looks for an exporter that was not there."""

_FIRST = 2.0
_STALE = 3
"""Periods after which the last page is too old to be shown."""


class _Answers:
    """A page's fields, as a device would give them."""

    def __init__(self, values: Mapping[Field, float]) -> None:
        self._values = values

    def fields(self, wanted: Sequence[Field]) -> Mapping[Field, float | DriverError]:
        return {field: self._values[field] for field in wanted if field in self._values}


class _Gpu:
    """A card, what the last page said of it, and the last Xid, which DCGM shows for ever."""

    def __init__(self, uuid: str, settings: GpuSettings, context: Context) -> None:
        self.card = Card(uuid, settings, context.clock, settings.dcgm_period)
        self.teller = Teller(self.card, context.clock, "dcgm")
        self.page: DcgmGpu | None = None
        self.xid: int | None = None


class DcgmSource:
    """Reads the exporter every few seconds in a thread of its own, as long as `wanted` says so."""

    def __init__(self, settings: GpuSettings, context: Context, wanted: Callable[[], bool]) -> None:
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._wanted = wanted
        self._changes = OnChange(context.log)
        self._exporter: Dcgm | None = None
        self._gpus: dict[str, _Gpu] = {}
        self._read_at: float | None = None
        self._error = ""
        self._asked = threading.Event()
        self._first = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="gpu dcgm", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        self._asked.set()

    def facts(self) -> Facts:
        """Raises NotPresent where no exporter was ever found, DcgmError when it does not answer any more."""
        self._asked.set()
        self._first.wait(min(_FIRST, self._settings.timeout / 2))
        read_at = self._read_at
        if read_at is None:
            raise NotPresent(self._error or "no dcgm-exporter was looked for yet")
        now = self._clock.monotonic()
        if now - read_at > _STALE * self._settings.dcgm_period:
            raise DcgmError(self._error or f"no answer of the dcgm-exporter for {now - read_at:.0f} s")
        gpus = list(self._gpus.values())
        samples = [Sample(metrics.GPUS.series(), len(gpus))]
        if self._settings.expected is not None:
            samples.append(Sample(metrics.EXPECTED.series(), self._settings.expected))
        levels: list[Level] = []
        for gpu in gpus:
            level = gpu.card.outlook.look(now, None)
            if level is not None:
                levels.append(level)
            samples += gpu.teller.samples(gpu.page.driver if gpu.page else "")
            samples += _rest(gpu)
        return Facts(samples, levels)

    def _run(self) -> None:
        self._asked.wait()  # nobody asks as long as the driver's library works
        while not self._ended.is_set():
            pause = self._settings.dcgm_period
            if self._wanted():
                pause = self._look()
                self._first.set()
            self._ended.wait(pause)
        if self._exporter is not None:
            self._exporter.close()

    def _look(self) -> float:
        """Seconds until the next one."""
        try:
            if self._exporter is None:
                url = find(self._settings, self._context.log)
                if url is None:
                    self._error = "no dcgm-exporter at 127.0.0.1:9400"
                    return _SEARCH
                self._exporter = Dcgm(url, self._context.log)
            self._take(self._exporter.poll())
        except DcgmError as error:
            self._error = str(error)
            self._changes.report("dcgm", self._error, logging.WARNING, f"dcgm-exporter: {error}")
        except Exception as error:  # noqa: BLE001 - a page that trips us must not end the thread
            self._error = f"{type(error).__name__}: {error}"
            self._changes.report("dcgm", self._error, logging.ERROR, f"reading the dcgm-exporter failed: {error!r}")
        else:
            self._error = ""
            self._changes.report("dcgm", "", logging.INFO, "reading GPUs from a dcgm-exporter")
        return self._settings.dcgm_period

    def _take(self, pages: Sequence[DcgmGpu]) -> None:
        now = self._clock.monotonic()
        gpus = {}
        events: list[Event] = []
        for page in pages:
            gpu = self._gpus.get(page.uuid) or _Gpu(page.uuid, self._settings, self._context)
            events += self._update(gpu, page, now)
            gpus[page.uuid] = gpu
        self._gpus = gpus
        self._read_at = now
        if events:
            self._context.push(Facts(events=events))

    def _update(self, gpu: _Gpu, page: DcgmGpu, now: float) -> Iterator[Event]:
        card = gpu.card
        identity = Identity(page.uuid, page.index, page.name, page.pci, "dcgm", "", None, bool(page.instances))
        known, card.identity = card.identity, identity
        if known is None and page.pci:
            yield card.seen()
        memory = _whole(page.memory)
        if memory is not None:
            card.track.take(now, memory)
        card.use(Utilization(page.gpu_utilization, page.copy_utilization))
        card.fields.read(_Answers(page.fields))
        for quantity in page.invalid:
            card.invalid[quantity] += 1
        # What it showed when we came may be years old.
        if gpu.page is not None and page.xid and page.xid != gpu.xid:
            fields: dict[str, str | int | float] = {"gpu": page.uuid, "xid": page.xid, "witness": "dcgm"}
            text = f"Xid {page.xid} on GPU {page.uuid}, as DCGM has it"
            yield Event("xid", self._clock.time(), self._clock.monotonic(), text, fields)
        gpu.xid = page.xid or gpu.xid
        gpu.page = page


def _whole(memory: DcgmMemory) -> Memory | None:
    if memory.total is None or memory.used is None or memory.free is None:
        return None
    return Memory(memory.total, memory.used, memory.free, memory.reserved)


def _rest(gpu: _Gpu) -> Iterator[Sample]:
    """What a page tells that is not enough to make a whole memory of it, and the MIG instances."""
    page = gpu.page
    if page is None:
        return
    if _whole(page.memory) is None:
        rows = (metrics.USED, metrics.FREE, metrics.RESERVED, metrics.TOTAL)
        for row, value in zip(rows, page.memory[:4], strict=True):
            if value is not None:
                yield Sample(row.series(page.uuid), value)
    for instance in page.instances:
        yield from _instance(page.uuid, instance)


def _instance(uuid: str, instance: DcgmInstance) -> Iterator[Sample]:
    name = str(instance.instance)
    yield Sample(metrics.MIG_INFO.series(uuid, name, "", instance.profile), 1)
    rows = (metrics.MIG_USED, metrics.MIG_FREE, metrics.MIG_RESERVED, metrics.MIG_TOTAL)
    for row, value in zip(rows, instance.memory[:4], strict=True):
        if value is not None:
            yield Sample(row.series(uuid, name), value)
