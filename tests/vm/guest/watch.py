"""Two who look at the daemon all the time: one asks for its page, one asks the kernel."""

import re
import threading
import time
from collections.abc import Mapping
from typing import Any

from vm.guest.scrape import Daemon
from vm.guest.service import Service

SCRAPE_SECONDS = 0.25
LOOK_SECONDS = 1.0

# A hundred pages in full are more than the guest has to spare.
_KEPT = re.compile(
    r"^oomcast_(?:collector_(?:largest|period|last|runs|duration|up)|scheduler|time_to_exhaustion|oom_kills).*$",
    re.MULTILINE,
)


class Watch:
    """answers: when a scrape began and ended, what failed, the lines that are kept. looks: when, and Service.look().

    Both until done(); monotonic seconds.
    """

    def __init__(self, daemon: Daemon, service: Service) -> None:
        self.answers: list[tuple[float, float, str, str]] = []
        self.looks: list[tuple[float, Mapping[str, str]]] = []
        self._daemon = daemon
        self._service = service
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=self._every, args=(seconds, action), name=action.__name__, daemon=True)
            for seconds, action in ((SCRAPE_SECONDS, self._scrape), (LOOK_SECONDS, self._look))
        ]
        for thread in self._threads:
            thread.start()

    def done(self) -> Mapping[str, Any]:
        """Raises RuntimeError if one of them ended by itself."""
        alive = all(thread.is_alive() for thread in self._threads)
        self._done.set()
        for thread in self._threads:
            thread.join(30)
        if not alive:
            raise RuntimeError("nobody looked at the daemon any more")
        return {"answers": self.answers, "looks": self.looks}

    def _every(self, seconds: float, action: Any) -> None:
        due = time.monotonic()
        while not self._done.wait(max(0.0, due - time.monotonic())):
            # What is late is left out, as Prometheus does.
            due = max(due + seconds, time.monotonic())
            action()

    def _scrape(self) -> None:
        began = time.monotonic()
        try:
            text, failed = self._daemon.metrics(), ""
        except OSError as error:
            text, failed = "", repr(error)
        self.answers.append((began, time.monotonic(), failed, "\n".join(_KEPT.findall(text))))

    def _look(self) -> None:
        self.looks.append((time.monotonic(), self._service.look()))
