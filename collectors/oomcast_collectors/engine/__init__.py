"""Inference engines and their KV cache, from what they serve to Prometheus."""

from oomcast.contract import CollectorSpec, Context, Facts, Level, NotPresent
from oomcast.metric import Sample
from oomcast_collectors.engine import metrics
from oomcast_collectors.engine.admission import kv_level
from oomcast_collectors.engine.roster import Roster
from oomcast_collectors.engine.settings import EngineSettings

__all__ = ["SPEC", "EngineCollector", "EngineSettings"]


class EngineCollector:
    """A Watcher: a thread per engine looks at it, a run publishes what they found."""

    def __init__(self, settings: EngineSettings, context: Context) -> None:
        self._roster = Roster(settings, context)

    def start(self) -> None:
        self._roster.start()

    def stop(self, deadline: float) -> None:
        self._roster.stop(deadline)

    def collect(self) -> Facts:
        """Raises NotPresent where no engine is configured and none was found."""
        watched = self._roster.renew()
        if not watched:
            sought = "or found" if self._roster.discovers else "and none is sought"
            raise NotPresent(f"no engine is configured {sought}", removed=True)
        samples: list[Sample] = []
        levels: list[Level] = []
        for watch, teller in watched:
            if watch.looked:
                samples += teller.samples()
                level = kv_level(watch.name, watch.reading, watch.counters.restarts)
                levels += [level] if level is not None else []
        return Facts(samples, levels)


SPEC = CollectorSpec(
    name="engine",
    help="inference engines: KV cache headroom, hit ratio, queue, prompt lengths, state; vLLM, SGLang, llama.cpp ..",
    settings=EngineSettings,
    metrics=metrics.METRICS,
    create=EngineCollector,
)
