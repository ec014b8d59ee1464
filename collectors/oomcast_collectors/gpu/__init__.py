"""GPU memory as the driver tells it, read fast enough to see a burst; from a dcgm-exporter where there is no driver."""

from oomcast.contract import CollectorSpec, Context, Facts, NotPresent
from oomcast_collectors.gpu import fields, metrics, processes
from oomcast_collectors.gpu.dcgm_source import DcgmSource
from oomcast_collectors.gpu.nvml import Nvml
from oomcast_collectors.gpu.nvml_source import NvmlSource
from oomcast_collectors.gpu.settings import GpuSettings

__all__ = ["SPEC", "GpuCollector", "GpuSettings"]


class GpuCollector:
    """A Watcher: threads of its own call the driver, a run publishes what they found."""

    def __init__(self, settings: GpuSettings, context: Context) -> None:
        self._nvml = NvmlSource(Nvml(), settings, context) if settings.source != "dcgm" else None
        self._dcgm = DcgmSource(settings, context, self._is_alone) if settings.source != "nvml" else None

    def start(self) -> None:
        if self._nvml:
            self._nvml.start()
        if self._dcgm:
            self._dcgm.start()

    def stop(self, deadline: float) -> None:
        if self._dcgm:
            self._dcgm.stop()
        if self._nvml:
            self._nvml.stop(deadline)

    def collect(self) -> Facts:
        """Raises NotPresent where no source is on this machine; what else is raised is a source that failed."""
        reasons = []
        for source in (self._nvml, self._dcgm):
            try:
                if source:
                    return source.facts()
            except NotPresent as absence:
                reasons.append(str(absence))
        raise NotPresent("; ".join(reasons))

    def _is_alone(self) -> bool:
        """Whether DCGM is asked: never beside the driver's library."""
        return self._nvml is None or self._nvml.missing


SPEC = CollectorSpec(
    name="gpu",
    help="memory of NVIDIA GPUs: peaks between scrapes, headroom, who took it, health; NVML or dcgm-exporter",
    settings=GpuSettings,
    metrics=(*metrics.METRICS, *fields.METRICS, *processes.METRICS),
    create=GpuCollector,
)
