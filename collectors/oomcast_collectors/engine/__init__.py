"""Inference engines and their KV cache, from what they serve to Prometheus."""

from oomcast.contract import CollectorSpec, Context, Facts, Level, NotPresent
from oomcast.metric import Sample
from oomcast_collectors.engine import metrics
from oomcast_collectors.engine.admission import kv_level
from oomcast_collectors.engine.settings import EngineSettings
from oomcast_collectors.engine.tell import Teller
from oomcast_collectors.engine.watch import EngineWatch

__all__ = ["SPEC", "EngineCollector", "EngineSettings"]


class EngineCollector:
    """A Watcher: a thread per engine looks at it, a run publishes what they found."""

    def __init__(self, settings: EngineSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._watches: dict[str, EngineWatch] = {}
        self._tellers: dict[str, Teller] = {}

    def start(self) -> None:
        context = self._context
        for endpoint in self._settings.endpoints:
            name = endpoint.name
            watch = EngineWatch(endpoint, name, self._settings, context.clock, context.log, context.push)
            self._watches[watch.name] = watch
            self._tellers[watch.name] = Teller(watch)
            watch.start()

    def stop(self, deadline: float) -> None:
        for watch in self._watches.values():
            watch.stop()

    def collect(self) -> Facts:
        """Raises NotPresent where no engine is configured and none was found."""
        if not self._watches:
            raise NotPresent("no engine is configured, and discovery is off")
        samples: list[Sample] = []
        levels: list[Level] = []
        for name, watch in self._watches.items():
            samples += self._tellers[name].samples()
            level = kv_level(name, watch.reading, watch.counters.restarts)
            if level is not None:
                levels.append(level)
        return Facts(samples, levels)


SPEC = CollectorSpec(
    name="engine",
    help="inference engines: KV cache headroom, hit ratio, queue, prompt lengths, state; vLLM, SGLang, llama.cpp ..",
    settings=EngineSettings,
    metrics=metrics.METRICS,
    create=EngineCollector,
)
