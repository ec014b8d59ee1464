"""An XidReconciler with its clock, and short ways to tell it what the witnesses tell."""

import logging
from collections.abc import Mapping

from fakes import FakeClock
from oomcast.contract import Event
from oomcast.metric import Sample
from oomcast.xids import XidReconciler

GPU, PCI = "GPU-a", "0000:3b:00.0"
FELL = "GPU has fallen off the bus."
Value = str | int | float


class Bench:
    """A reconciler with its clock; everything is told at the clock's present."""

    def __init__(self, *, seen: bool = True) -> None:
        self.clock = FakeClock()
        self.reconciler = XidReconciler(self.clock, logging.getLogger("test"))
        if seen:
            self.gpu_seen()

    def see(self, kind: str, fields: Mapping[str, Value], ago: float = 0.0) -> None:
        time, monotonic = self.clock.time() - ago, self.clock.monotonic() - ago
        self.reconciler.see([Event(kind, time, monotonic, kind, fields)])

    def gpu_seen(self, gpu: str = GPU, pci: str = PCI) -> None:
        self.see("gpu_seen", {"gpu": gpu, "pci": pci})

    def line(self, xid: int, pci: str = PCI, ago: float = 0.0, **more: Value) -> None:
        self.see("xid", {"pci": pci, "xid": xid, "message": FELL, **more}, ago)

    def nvml(self, xid: int, gpu: str = GPU) -> None:
        self.see("xid", {"gpu": gpu, "xid": xid, "witness": "nvml"})

    def dcgm(self, xid: int, gpu: str = GPU) -> None:
        self.see("xid", {"gpu": gpu, "xid": xid, "witness": "dcgm"})

    def wait(self, seconds: float) -> list[Event]:
        self.clock.advance(seconds)
        return self.reconciler.settle()

    def sample(self, name: str = "oomcast_xid_errors_total") -> dict[tuple[str, str], Sample]:
        """By (gpu, xid); gpu "" where the label is left out."""
        labelled = [(dict(sample.series.labels), sample) for sample in self.reconciler.samples()]
        return {
            (labels.get("gpu", ""), labels["xid"]): sample
            for labels, sample in labelled
            if sample.series.metric.name == name
        }

    def counts(self) -> dict[tuple[str, str], object]:
        """Those that are not 0."""
        return {key: sample.value for key, sample in self.sample().items() if sample.value}
