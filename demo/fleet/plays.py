"""What happens at a node, and when: each play tells its moments as they come."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fleet import writer
from fleet.site import USABLE, Site, fill
from fleet.spec import Play
from fleet.worker import Worker
from incident.story import with_template

Tell = Callable[[str, float], None]
"""A moment: its name, and monotonic seconds."""

FILE, RATE = 512 << 20, 20 << 20
"""Bytes of the file that is written, and bytes a second."""

_FILLED = int(0.9 * USABLE)
_LOOK = 0.05


def play(site: Site, tell: Tell) -> None:
    """Begins at once, and is over when nothing more will happen or the site is stopping."""
    site.life.start()
    tell("calm", time.monotonic())
    if not site.stopping.wait(site.spec.calm):
        _PLAYS[site.spec.play](site, tell)


def _incident(site: Site, tell: Tell) -> None:
    site.life.send_jobs(with_template(site.spec.jobs), site.spec.apart)
    tell("jobs", time.monotonic())
    for moment in ("out_of_memory", "died"):
        while (at := getattr(site.life, moment)) is None:
            if site.stopping.wait(_LOOK):
                return
        tell(moment, at)
    _come_back(site, tell)


def _restart(site: Site, tell: Tell) -> None:
    tell("stopped", time.monotonic())
    _come_back(site, tell)


def _come_back(site: Site, tell: Tell) -> None:
    site.end()
    if site.stopping.wait(site.spec.down):
        return
    tell("loading", time.monotonic())
    site.load()
    if not site.stopping.is_set():
        site.restart()
        tell("back", time.monotonic())


def _load(site: Site, tell: Tell) -> None:
    other = Worker()
    try:
        fill(site.driver, site.driver.gpus[1], other.pid, _FILLED, site.spec.loading)
        tell("loading", time.monotonic())
        if not site.stopping.wait(site.spec.loading):
            tell("loaded", time.monotonic())
        site.stopping.wait()
    finally:
        other.end()


def _page_cache(site: Site, tell: Tell) -> None:
    file = site.directory / "written"
    command = [sys.executable, "-S", "-E", writer.__file__, str(file), str(FILE), str(RATE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        tell("writing", time.monotonic())
        while not site.stopping.wait(_LOOK):
            if process.poll() is not None:
                raise RuntimeError(f"{Path(writer.__file__).name} ended with {process.returncode}")


def _nothing(site: Site, tell: Tell) -> None:
    """The users go on."""


_PLAYS: dict[Play, Callable[[Site, Tell], None]] = {
    "incident": _incident,
    "healthy": _nothing,
    "no_reuse": _nothing,
    "restart": _restart,
    "load": _load,
    "pool": _nothing,
    "page_cache": _page_cache,
}
