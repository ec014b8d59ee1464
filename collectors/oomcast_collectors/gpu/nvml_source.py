"""The GPUs as the driver's library has them: the session, what goes round the cards, and what is published of them."""

import time

from oomcast.contract import Context, Facts, Level, NotPresent
from oomcast.metric import Sample
from oomcast_collectors.gpu import metrics
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import Driver
from oomcast_collectors.gpu.kernel import gpu_count
from oomcast_collectors.gpu.processes import Processes
from oomcast_collectors.gpu.relay import Relay, Watchdog
from oomcast_collectors.gpu.sampling import MemoryJob
from oomcast_collectors.gpu.session import Session
from oomcast_collectors.gpu.settings import GpuSettings
from oomcast_collectors.gpu.slow import SlowJob
from oomcast_collectors.gpu.tell import Teller

_FIRST = 2.0
"""Seconds that the first run waits for first readings, at most."""

_LONGEST_INIT = 5.0
"""Seconds for which the library may be closed, to be initialised anew, before what is known of the GPUs is too old."""


class GpuError(Exception):
    """There are GPUs, or there is a driver, and they cannot be read."""


class NvmlSource:
    """Starts the threads; `facts` only gathers what they found, and never calls the driver."""

    def __init__(self, driver: Driver, settings: GpuSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._session = Session(driver, settings, context)
        self._processes = Processes(settings, context)
        self._memory = MemoryJob(settings, context.clock, context.push, self._session.refuse, self._peaks)
        self._slow = SlowJob(
            settings, context.clock, context.roots.proc, self._processes, context.push, self._session.refuse
        )
        self._relays = [Relay(job, context.clock, context.log) for job in (self._memory, self._slow)]
        self._watchdog = Watchdog(self._relays)
        self._tellers: dict[str, Teller] = {}
        self._waited = False

    def start(self) -> None:
        self._session.start(self._relays)
        self._watchdog.start()

    def stop(self, deadline: float) -> None:
        self._watchdog.end()
        self._session.stop(deadline)

    @property
    def missing(self) -> bool:
        """Whether there is no driver, and never was one: somebody else may know the GPUs."""
        error = self._session.error
        return not self._session.inits and error is not None and error.fault == "no_driver"

    def facts(self) -> Facts:
        """Raises NotPresent without a driver, GpuError where there is one that cannot be used."""
        if not self._waited:
            self._waited = True
            self._await_first()
        session = self._session
        self._check()
        cards = session.cards
        for uuid in self._tellers.keys() - cards.keys():
            del self._tellers[uuid]
        self._slow.keep(cards.keys())
        samples = [Sample(metrics.GPUS.series(), session.counted), Sample(metrics.INITS.series(), session.inits)]
        expected = self._expected()
        if expected is not None:
            samples.append(Sample(metrics.EXPECTED.series(), expected))
        levels: list[Level] = []
        for card in cards.values():
            levels += self._levels(card)
            samples += self._teller(card).samples(session.version)
        silent = {uuid for uuid, card in cards.items() if card.state in ("stuck", "lost")}
        samples += self._processes.samples(silent)
        return Facts(samples, levels)

    def _check(self) -> None:
        session = self._session
        error, closed_since = session.error, session.closed_since
        if error is not None:
            if self.missing:
                raise NotPresent(f"no NVIDIA driver: {error}")
            raise GpuError(f"NVML cannot be used: {error}")
        if closed_since is None:
            return
        seconds = self._clock.monotonic() - closed_since
        if not session.inits or seconds >= _LONGEST_INIT:
            raise GpuError(f"NVML has not come back from its initialisation for {seconds:.0f} s")

    def _await_first(self) -> None:
        """So that a single run, as `check` makes it, has something to say."""
        end = time.monotonic() + min(_FIRST, self._settings.timeout / 2)
        self._session.settled.wait(max(end - time.monotonic(), 0))
        while time.monotonic() < end and not all(_read(card) for card in self._session.cards.values()):
            time.sleep(0.02)

    def _expected(self) -> int | None:
        if self._settings.expected is not None:
            return self._settings.expected
        return gpu_count(self._context.roots.proc)

    def _levels(self, card: Card) -> list[Level]:
        now = self._clock.monotonic()
        newest = None if card.is_cut_up else self._processes.loading_since(card.uuid)
        found = [outlook.look(now, newest) for outlook in card.outlooks]
        return [level for level in found if level is not None]

    def _teller(self, card: Card) -> Teller:
        teller = self._tellers.get(card.uuid)
        if teller is None:
            teller = self._tellers[card.uuid] = Teller(card, self._clock, "nvml")
        return teller

    def _peaks(self, card: Card) -> list[Sample]:
        teller = self._tellers.get(card.uuid)
        return teller.peaks(self._clock.monotonic()) if teller else []


def _read(card: Card) -> bool:
    known = card.track.ever_read or "memory" in card.unsupported or card.state != "ok"
    return known and (card.identity is not None or card.state != "ok")
