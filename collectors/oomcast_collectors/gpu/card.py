"""One GPU as it is known, over all sessions of the driver's library.

Written by the threads that call the driver, one of them at a time for each part; read by the collector's run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oomcast.clock import Clock
from oomcast.contract import Event
from oomcast_collectors.gpu.driver import Device, DriverError, Fault, Identity, Instance, Utilization
from oomcast_collectors.gpu.fields import Fields
from oomcast_collectors.gpu.outlook import Outlook
from oomcast_collectors.gpu.settings import GpuSettings
from oomcast_collectors.gpu.surge import CopySurge
from oomcast_collectors.gpu.track import Track, lasts

_LASTING: tuple[Fault, ...] = ("lost", "reset_required", "not_permitted")
_RETRY = 1.0
_PATIENCE = 3.0
"""Seconds of errors in a row after which a GPU counts as unreadable."""


class Slice:
    """A MIG GPU instance of now, and its memory."""

    def __init__(self, instance: Instance, settings: GpuSettings) -> None:
        self.instance = instance
        self.track = Track(settings.window, settings.exhausted_ratio, settings.sampling_period)
        self.outlook = Outlook(self.track, "gpu_mig_memory", instance.uuid, settings.load_grace)


class Card:
    """hanging, handovers: see relay.py. rests_until: monotonic time before which nobody asks it anything.

    period: seconds between two readings, by default the setting sampling_period.
    """

    def __init__(self, uuid: str, settings: GpuSettings, clock: Clock, period: float | None = None) -> None:
        self.uuid = uuid
        self._settings = settings
        self.clock = clock
        self.device: Device | None = None
        self.identity: Identity | None = None
        self.kind = ""
        self.hanging: dict[str, float] = {}
        self.handovers = 0
        self.rests_until = 0.0
        self._period = settings.sampling_period if period is None else period
        self.track = Track(settings.window, settings.exhausted_ratio, self._period)
        self.outlook = Outlook(self.track, "gpu_memory", uuid, settings.load_grace)
        self.slices: tuple[Slice, ...] = ()
        self.unsupported: set[str] = set()
        self.next_utilization = 0.0
        self.next_identity = 0.0
        self.call_seconds = 0.0
        self.exhaustions_told = 0
        self.fields = Fields(uuid)
        self.surge = CopySurge(uuid, clock)
        self.errors: Counter[str] = Counter()
        self.invalid: Counter[str] = Counter()
        self._utilization: tuple[float, float, Utilization] | None = None
        """When it was read, for how long it may be shown, and what it was."""
        self._error: DriverError | None = None
        self._failing_since: float | None = None

    @property
    def state(self) -> str:
        """One of metrics.STATES."""
        if self.hanging:
            return "stuck"
        error, since = self._error, self._failing_since
        if error is None or since is None:
            return "ok"
        if error.fault in _LASTING:
            return error.fault
        return "unreadable" if self.clock.monotonic() - since >= _PATIENCE else "ok"

    @property
    def is_cut_up(self) -> bool:
        """Whether it is in MIG mode."""
        return self.identity is not None and self.identity.mig

    @property
    def outlooks(self) -> Sequence[Outlook]:
        """Of what can run out: the GPU, or the instances where it is cut up, for then the whole is no such thing."""
        return [part.outlook for part in self.slices] if self.is_cut_up else (self.outlook,)

    @property
    def stuck_since(self) -> float | None:
        """Monotonic time at which the oldest call began that has not come back."""
        return min(list(self.hanging.values()), default=None)

    @property
    def all_errors(self) -> Mapping[str, int]:
        """Calls that failed, by what was asked for."""
        return _sums(self.errors, self.fields.errors)

    @property
    def all_invalid(self) -> Mapping[str, int]:
        """Readings that cannot be true, by what was asked for."""
        memory = {"memory": self.track.invalid, "mig_memory": sum(part.track.invalid for part in self.slices)}
        return _sums(self.invalid, self.fields.invalid, memory)

    def attach(self, device: Device) -> None:
        """A session of the library has begun, in which the GPU has this handle. What was unsupported may be there."""
        self.unsupported = set()
        self.fields.renew()
        self.rests_until = self.next_identity = self.next_utilization = 0.0
        self.device = device

    def detach(self) -> None:
        """The library is about to be closed: nobody asks it anything until it is attached again."""
        self.device = None
        self.fields.forget()

    def lose_handle(self, error: DriverError) -> None:
        """The library gives no handle of it any more."""
        self.failed(error, "handle")
        self.device = None
        self.forget()

    def failed(self, error: DriverError, what: str) -> None:
        """The GPU as a whole gave no answer when asked `what`."""
        now = self.clock.monotonic()
        self.errors[what] += 1
        if self._failing_since is None:
            self._failing_since = now
        self._error = error
        if error.fault in _LASTING:
            self.rests_until = now + _RETRY
            self.forget()

    def answered(self) -> None:
        if self._error is not None:
            self._error = self._failing_since = None

    def forget(self) -> None:
        """What was read is not true any more."""
        self.track.lose()
        self.fields.forget()
        self._cut(())
        self._utilization = None

    def use(self, utilization: Utilization) -> None:
        """Takes a reading of the utilisation; what cannot be true is dropped and counted."""
        sound = [value if value is None or 0 <= value <= 1 else None for value in utilization]
        if sound != list(utilization):
            self.invalid["utilization"] += 1
        last, now = self._utilization, self.clock.monotonic()
        gap = now - last[0] if last else 0.0
        self._utilization = now, lasts(self._period, gap), Utilization(*sound)

    def utilization(self) -> Utilization:
        """The last reading, unless it is too old to be shown."""
        last = self._utilization
        fresh = last is not None and self.clock.monotonic() - last[0] < last[1]
        return last[2] if last and fresh else Utilization(None, None)

    def cut(self, instances: Sequence[Instance]) -> None:
        """Takes the MIG layout of now: an instance that stays keeps its past, one made anew at its place does not."""
        before = {(s.instance.instance, s.instance.uuid): s for s in self.slices}
        slices = []
        for instance in instances:
            part = before.get((instance.instance, instance.uuid)) or Slice(instance, self._settings)
            part.instance = instance
            slices.append(part)
        self._cut(tuple(slices))

    def _cut(self, slices: tuple[Slice, ...]) -> None:
        gone = set(self.slices) - set(slices)
        self.slices = slices
        # What was counted of one stays counted without it.
        self.invalid["mig_memory"] += sum(part.track.invalid for part in gone)

    def seen(self) -> Event:
        """That it was found, for those who know GPUs by their PCI address."""
        identity = self.identity
        assert identity is not None
        fields: dict[str, str | int | float] = {"gpu": self.uuid, "pci": identity.pci, "name": identity.name}
        text = f"GPU {self.uuid}: {identity.name} at {identity.pci}"
        return Event("gpu_seen", self.clock.time(), self.clock.monotonic(), text, fields)


def _sums(*counts: Mapping[Any, int]) -> Mapping[str, int]:
    names = sorted({name for count in counts for name in tuple(count)})
    sums = {name: sum(count.get(name, 0) for count in counts) for name in names}
    return {name: count for name, count in sums.items() if count}
