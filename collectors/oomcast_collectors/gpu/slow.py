"""The slow job: everything but memory, every few seconds. Each part may fail without costing the others."""

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

from oomcast.clock import Clock
from oomcast.contract import Facts
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import OF_LIBRARY, Device, DriverError, ProcessMemory
from oomcast_collectors.gpu.kernel import host_memory
from oomcast_collectors.gpu.kind import MemoryKind
from oomcast_collectors.gpu.processes import Processes
from oomcast_collectors.gpu.settings import GpuSettings

_IDENTITY_PERIOD = 30.0


class SlowJob:
    """proc: where the host's /proc is. processes: who holds the memory of all GPUs; it is used under a lock, for after
    a handover two threads may be here, each with another GPU."""

    name = "slow"
    patience = 2.0

    def __init__(
        self,
        settings: GpuSettings,
        clock: Clock,
        proc: Path,
        processes: Processes,
        push: Callable[[Facts], None],
        refused: Callable[[DriverError], None],
    ) -> None:
        self._period = settings.slow_period
        self._clock = clock
        self._proc = proc
        self._processes = processes
        self._push = push
        self._refused = refused
        self._looked_at: set[str] = set()
        self._kinds: dict[str, MemoryKind] = {}
        self._lock = threading.Lock()

    def pause(self) -> float:
        return self._period

    def visit(self, card: Card) -> None:
        device = card.device
        if device is None:
            return
        now = self._clock.monotonic()
        if now >= card.next_identity:
            self._part(card, "identity", lambda: self._identify(card, device, now))
        asked = self._part(card, "fields", lambda: card.fields.read(device))
        if "memory" in card.unsupported and asked:
            card.answered()  # nobody else asks this GPU anything
        self._part(card, "processes", lambda: self._look_at_processes(card, device))
        if card.is_cut_up:
            self._part(card, "mig", lambda: card.cut(device.instances()))
        elif card.slices:
            card.cut(())

    def keep(self, uuids: Set[str]) -> None:
        """Forgets all other GPUs: also one whose visit was under way when it went. Never blocks; what cannot be
        forgotten now is the next time."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for uuid in self._looked_at - uuids:
                self._processes.forget(uuid)
                self._kinds.pop(uuid, None)
            self._looked_at &= uuids
        finally:
            self._lock.release()

    def _identify(self, card: Card, device: Device, now: float) -> None:
        identity = device.identity()
        known = card.identity
        memory = card.track.fresh(self._clock.monotonic())
        kind = self._kinds.setdefault(card.uuid, MemoryKind())
        card.kind = kind.look(identity, memory.total if memory else None, host_memory(self._proc))
        card.identity = identity
        if known is None or known.pci != identity.pci:
            self._push(Facts(events=[card.seen()]))
        if card.kind != "unknown":
            card.next_identity = now + _IDENTITY_PERIOD

    def _look_at_processes(self, card: Card, device: Device) -> None:
        if "processes" in card.unsupported:
            return
        try:
            found = device.processes()
            accounting = self._accounting(card, device)
        except DriverError as error:
            if error.fault == "unsupported":
                card.unsupported.add("processes")
            self._update(card, None, {})
            raise
        self._update(card, found, accounting)

    def _accounting(self, card: Card, device: Device) -> Mapping[int, int]:
        if "accounting" in card.unsupported:
            return {}
        try:
            return device.accounting()
        except DriverError as error:
            # Off now; it may be switched on, which the next session of the library will find.
            if error.fault == "unsupported":
                card.unsupported.add("accounting")
                return {}
            raise

    def _update(self, card: Card, found: Sequence[ProcessMemory] | None, accounting: Mapping[int, int]) -> None:
        now = self._clock.monotonic()
        memory = card.track.fresh(now)
        used, usable = (memory.used, card.track.window.usable) if memory else (None, None)
        with self._lock:
            self._looked_at.add(card.uuid)
            events = self._processes.update(card.uuid, used, usable, found, accounting, now)
        if events:
            self._push(Facts(events=events))

    def _part(self, card: Card, what: str, ask: Callable[[], None]) -> bool:
        """Whether it was answered."""
        try:
            ask()
        except DriverError as error:
            if error.fault == "unsupported":
                card.unsupported.add(what)
            elif "memory" in card.unsupported:
                card.failed(error, what)
                if error.fault in OF_LIBRARY:
                    self._refused(error)
            else:
                # Whether the GPU as a whole answers, the memory job says fifty times a second.
                card.errors[what] += 1
            return False
        return True
