"""The collectors of this daemon: made from their settings, started, replaced on a reload, stopped."""

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from oomcast.clock import Clock
from oomcast.contract import Collector, CollectorSettings, CollectorSpec, Context, Facts, Roots
from oomcast.page import Row
from oomcast.pipeline import Pipeline
from oomcast.runner import Runner
from oomcast.scheduler import Scheduler
from oomcast.settings import Settings
from oomcast.slo import Slo


@dataclass(frozen=True, slots=True)
class Post:
    """One collector at work."""

    spec: CollectorSpec
    settings: CollectorSettings
    serving: tuple[str, ...]
    slo: Slo
    roots: Roots
    collector: Collector
    runner: Runner


class Station:
    """Holds a Post for every collector that is switched on. Two calls at once are the caller's to prevent.

    restart: takes the name of a collector that asks for a restart, and the reason.
    """

    def __init__(
        self,
        specs: Sequence[CollectorSpec],
        pipeline: Pipeline,
        scheduler: Scheduler,
        clock: Clock,
        restart: Callable[[str, str], None],
    ) -> None:
        self._specs = specs
        self._pipeline = pipeline
        self._scheduler = scheduler
        self._clock = clock
        self._restart = restart
        self._posts: dict[str, Post] = {}

    @property
    def runners(self) -> list[Runner]:
        return [post.runner for post in self._posts.values()]

    @property
    def off(self) -> list[CollectorSpec]:
        """The collectors that are switched off."""
        return [spec for spec in self._specs if spec.name not in self._posts]

    def rows(self) -> list[Row]:
        """Every collector for the landing page, in the order of the specs."""
        posts = dict(self._posts)
        return [
            Row(spec.name, post.runner.state or "pending", post.runner.reason, spec.help)
            if (post := posts.get(spec.name))
            else Row(spec.name, "disabled", help=spec.help)
            for spec in self._specs
        ]

    def apply(self, settings: Settings, deadline: float) -> None:
        """Starts, stops and replaces collectors so that they are as `settings` say; the unchanged ones go on.

        deadline: monotonic; stopping a replaced one takes no longer.
        """
        self.end_changed(settings, deadline)
        self.begin_missing(settings)

    def end_changed(self, settings: Settings, deadline: float) -> None:
        """Stops the collectors that `settings` change or switch off. Waits for them, so not for the event loop."""
        gone = [name for name, post in self._posts.items() if not _unchanged(post, settings)]
        stopping = [self._posts.pop(name) for name in gone]
        for post in stopping:
            self._scheduler.remove(post.spec.name)
        self._stop(stopping, deadline)
        for post in stopping:
            post.runner.retire()

    def begin_missing(self, settings: Settings) -> None:
        """Starts the collectors that `settings` ask for and that do not run."""
        for spec in self._specs:
            own = settings.collectors[spec.name]
            if own.enabled and spec.name not in self._posts:
                post = self._make(spec, own, settings)
                self._posts[spec.name] = post
                self._scheduler.add(post.runner, own.interval)

    def stop(self, deadline: float) -> None:
        """Stops what the collectors started; returns before the monotonic `deadline`."""
        self._stop(list(self._posts.values()), deadline)

    def _make(self, spec: CollectorSpec, own: CollectorSettings, settings: Settings) -> Post:
        serving, slo, roots = settings.serving_processes, settings.slo, settings.paths.roots()
        log = logging.getLogger(f"oomcast.{spec.name}")
        restart = functools.partial(self._restart, spec.name)
        context = Context(roots, self._clock, log, self._pipeline.push(spec.name), serving, restart, slo)
        try:
            collector = spec.create(own, context)
            start = _method(collector, "start")
            if start:
                start()
        except Exception as error:  # noqa: BLE001 - it must not take the other collectors down; each run tells
            collector = _Broken(error)
        runner = Runner(spec.name, collector, own.timeout, self._pipeline, self._clock, log)
        return Post(spec, own, serving, slo, roots, collector, runner)

    def _stop(self, posts: Sequence[Post], deadline: float) -> None:
        # Each in a thread of its own: one that hangs, against the contract, must not keep the others from stopping.
        threads = {}
        for post in posts:
            stop = _method(post.collector, "stop")
            if stop:
                thread = threads[post.spec.name] = threading.Thread(
                    target=_stopped, args=(post, stop, deadline), name=f"stop {post.spec.name}", daemon=True
                )
                thread.start()
        for name, thread in threads.items():
            thread.join(max(deadline - self._clock.monotonic(), 0))
            if thread.is_alive():
                logging.getLogger(f"oomcast.{name}").warning("did not stop in time and is left behind")


class _Broken:
    """Stands for a collector that could not be made: every run fails with the reason."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._trace = error.__traceback__

    def collect(self) -> Facts:
        # With its first traceback: each raise would add to the one it has, for ever.
        raise self._error.with_traceback(self._trace)


def _stopped(post: Post, stop: Callable[[float], None], deadline: float) -> None:
    try:
        stop(deadline)
    except Exception:
        logging.getLogger(f"oomcast.{post.spec.name}").exception("stopping failed")


def _method(collector: Collector, name: str) -> Callable[..., None] | None:
    return getattr(collector, name, None)


def _unchanged(post: Post, settings: Settings) -> bool:
    own: Mapping[str, CollectorSettings] = settings.collectors
    return (
        own[post.spec.name] == post.settings
        and settings.serving_processes == post.serving
        and settings.slo == post.slo
        and settings.paths.roots() == post.roots
    )
