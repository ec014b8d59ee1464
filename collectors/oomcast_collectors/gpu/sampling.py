"""The fast job: memory of every GPU, as often as its driver bears it."""

import math
from array import array
from collections.abc import Callable
from statistics import median

from oomcast.clock import Clock
from oomcast.contract import Event, Facts
from oomcast.metric import Sample
from oomcast_collectors.gpu.card import Card
from oomcast_collectors.gpu.driver import OF_LIBRARY, Device, DriverError
from oomcast_collectors.gpu.settings import GpuSettings
from oomcast_collectors.gpu.window import EPISODE

_UTILIZATION_PERIOD = 0.2
"""The driver averages over 1/6 to 1 s; more often says nothing new."""

_ROUNDS = 25


class MemoryJob:
    """refused: told of every error that is about the library and not about one GPU. peaks: what a higher peak changes
    in what the last run published."""

    name = "memory"
    patience = 0.1

    def __init__(
        self,
        settings: GpuSettings,
        clock: Clock,
        push: Callable[[Facts], None],
        refused: Callable[[DriverError], None],
        peaks: Callable[[Card], list[Sample]],
    ) -> None:
        self._period = settings.sampling_period
        self._share = settings.driver_share
        self._now = clock.monotonic
        self._clock = clock
        self._push = push
        self._refused = refused
        self._peaks = peaks
        self._spent = 0.0
        self._rounds = array("d")
        self._calm = 0
        """Rounds in a row that stayed within the share."""

    def visit(self, card: Card) -> None:
        device = card.device
        if device is None:
            return
        began = self._now()
        try:
            news = self._read(card, device, began)
        except DriverError as error:
            self._failed(card, error)
            return
        finally:
            self._spent += self._now() - began
        if "memory" not in card.unsupported:  # else nothing was asked that tells
            card.answered()
        if news or card.outlook.due(began) or (card.slices and any(s.outlook.due(began) for s in card.slices)):
            self._tell(card)

    def pause(self) -> float:
        """The period of the settings, or what keeps the driver's calls within their share of a core: of the last
        rounds the median, so that one slow call changes nothing."""
        rounds = self._rounds
        rounds.append(self._spent)
        self._calm = self._calm + 1 if self._spent <= self._period * self._share else 0
        self._spent = 0.0
        if len(rounds) > _ROUNDS:
            del rounds[0]
        if self._calm > _ROUNDS // 2:
            return self._period  # so is the median, which costs more than the readings of several GPUs
        return max(self._period, median(rounds) / self._share)

    def _read(self, card: Card, device: Device, began: float) -> bool:
        news = False
        if "memory" not in card.unsupported:
            memory = device.memory()
            at = self._now()
            card.call_seconds += at - began
            news = card.track.take(at, memory)
        for part in card.slices:
            try:
                news |= part.track.take(self._now(), part.instance.memory())
            except DriverError:
                # The instance may just have been destroyed; the slow job finds the layout of now.
                card.errors["mig_memory"] += 1
        if began >= card.next_utilization:
            card.next_utilization = began + _UTILIZATION_PERIOD
            self._read_utilization(card, device)
        return news

    def _read_utilization(self, card: Card, device: Device) -> None:
        try:
            utilization = device.utilization()
        except DriverError as error:
            if error.fault == "unsupported":
                card.unsupported.add("utilization")
                card.next_utilization = math.inf
            else:
                card.errors["utilization"] += 1
            return
        card.use(utilization)
        copy = card.utilization().copy
        surge = None if copy is None else card.surge.add(self._now(), copy)
        if surge:
            self._push(Facts(events=[surge]))

    def _failed(self, card: Card, error: DriverError) -> None:
        if error.fault == "unsupported":
            card.unsupported.add("memory")
            card.track.lose()
            return
        card.failed(error, "memory")
        if error.fault in OF_LIBRARY:
            self._refused(error)

    def _tell(self, card: Card) -> None:
        now = self._now()
        levels = [level for outlook in card.outlooks if (level := outlook.level(now)) is not None]
        self._push(Facts(samples=self._peaks(card), levels=levels, events=self._exhaustions(card)))

    def _exhaustions(self, card: Card) -> list[Event]:
        window = card.track.window
        if window.exhaustions == card.exhaustions_told:
            return []
        card.exhaustions_told = window.exhaustions
        text = f"GPU {card.uuid} has had its memory exhausted for {EPISODE} s"
        fields: dict[str, str | int | float] = {"gpu": card.uuid, "usable_bytes": window.usable}
        return [Event("gpu_memory_exhausted", self._clock.time(), self._now(), text, fields)]
