"""The daemon's HTTP path over a store of any size: prints its port, then does what each line on stdin says.

"fill SERIES SHARE": a new snapshot of that many series, that share of them with new values. "peer": what
prometheus_client takes for the same store, in CPU seconds and bytes, plain and then also gzipped. Each line is answered
by one line.
"""

import asyncio
import gzip
import logging
import sys
import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

from oomcast.exposition import Exposition
from oomcast.metric import Sample
from oomcast.store import Store
from oomcast.web import create_app
from oomcast.webserver import Server
from oomcast_collectors.cgroup import metrics

_EACH = (metrics.USED, metrics.LIMIT, metrics.UNRECLAIMABLE, metrics.PGMAJFAULT)
_PATH = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{0:08x}_5d2c_4b7a_9f10_{0:012x}.slice"


class Snapshots:
    """Snapshots as a cgroup collector makes them: byte counts in the gigabytes on paths of Kubernetes' length."""

    def __init__(self) -> None:
        self.store = Store(metrics.METRICS)
        self._samples: list[Sample] = []
        self._round = 0

    def fill(self, count: int, share: float) -> None:
        if len(self._samples) != count:
            paths = [_PATH.format(i) for i in range(count // len(_EACH))]
            self._samples = [Sample(metric.series(path), 0) for path in paths for metric in _EACH]
        self._round += 1
        changed = round(share * len(self._samples))
        for i in range(changed):
            series = self._samples[i].series
            self._samples[i] = Sample(series, (7 << 30) + 4096 * (i + 7919 * self._round))
        self.store.put("cgroup", list(self._samples))


def peer(registry: CollectorRegistry) -> str:
    """CPU seconds and size of prometheus_client's text, and of the same compressed as its own server does."""
    began = time.process_time()
    text = generate_latest(registry)
    plain = time.process_time() - began
    packed = gzip.compress(text)
    return f"{plain} {len(text)} {time.process_time() - began} {len(packed)}"


class _Healthy:
    def healthy(self) -> tuple[bool, str]:
        return True, ""

    ready = healthy


async def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    snapshots = Snapshots()
    registry = CollectorRegistry()
    registry.register(snapshots.store)
    server = Server(create_app(Exposition(snapshots.store), _Healthy(), lambda: ()), "127.0.0.1:0")
    await server.start()
    print(server.url.rpartition(":")[2], flush=True)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def obey(words: list[str]) -> None:
        answer = ""
        if words[0] == "fill":
            snapshots.fill(int(words[1]), float(words[2]))
        else:
            answer = peer(registry)
        print(answer, flush=True)

    threading.Thread(target=_listen, args=(loop, obey, ended), daemon=True).start()
    await ended.wait()
    await server.stop(1)


def _listen(loop: asyncio.AbstractEventLoop, obey: Callable[[list[str]], None], ended: asyncio.Event) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(obey, line.split())
    loop.call_soon_threadsafe(ended.set)


if __name__ == "__main__":
    asyncio.run(main())
