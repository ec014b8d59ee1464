"""What engines say of their end in their logs: files, journald and container logs, by rules.

A rule is a text that an engine prints; each line that has it is counted, and told as an event with the line's numbers.
Nothing else of a line leaves this package: it may hold a user's prompt.
"""

from oomcast.contract import CollectorSpec, Context, Event, Facts, NotPresent
from oomcast_collectors.engine_log import metrics
from oomcast_collectors.engine_log.findings import Findings
from oomcast_collectors.engine_log.settings import EngineLogSettings
from oomcast_collectors.engine_log.sources import Sources
from oomcast_collectors.engine_log.watch import Watch

_STUCK = 30.0


class EngineLogError(Exception):
    """The logs were followed and no longer are."""


class EngineLogCollector:
    """A Watcher. Between its runs a thread reads the logs and pushes what it finds."""

    def __init__(self, settings: EngineLogSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._findings = Findings(settings.all_rules(), context.clock, context.log, self._push)
        for entry in settings.files:
            self._findings.engine(entry.engine)
        self._watch: Watch | None = None
        self._stopped = False

    def start(self) -> None:
        if self._has_sources():
            self._watch = self._new_watch()

    def stop(self, deadline: float) -> None:
        self._stopped = True
        if self._watch is not None:
            self._watch.stop(deadline)
            self._watch = None

    def collect(self) -> Facts:
        """The counters. Raises NotPresent without a log to follow, EngineLogError after the thread has died, and while
        it is stuck."""
        if self._stopped or not self._has_sources():
            raise NotPresent("the settings name no logs to follow")
        if self._watch is None:
            self._watch = self._new_watch()
        now = self._context.clock.monotonic()
        if (failure := self._watch.failure) is not None:
            self._watch.stop(now + 1.0)
            # Again at once: what is written until the next run would be missed as well.
            self._watch = self._new_watch()
            raise EngineLogError(f"a look at the logs failed: {failure}") from failure
        if now - self._watch.looked > _STUCK:
            raise EngineLogError(f"no look at the logs has ended for {now - self._watch.looked:.0f} s")
        return Facts(samples=self._findings.samples())

    def _has_sources(self) -> bool:
        return bool(self._settings.files or self._settings.units or self._settings.containers)

    def _new_watch(self) -> Watch:
        settings, context = self._settings, self._context
        pods = context.roots.pods if settings.containers else None
        sources = Sources(settings.files, pods, settings.names, context.log)
        watch = Watch(sources, settings.units, self._findings, context.clock, context.log)
        watch.start()
        return watch

    def _push(self, event: Event) -> None:
        self._context.push(Facts(events=[event]))


SPEC = CollectorSpec(
    name="engine_log",
    help="out-of-memory errors, full KV caches, crashes and bad numbers from the logs of inference engines",
    settings=EngineLogSettings,
    metrics=metrics.METRICS,
    create=EngineLogCollector,
)
