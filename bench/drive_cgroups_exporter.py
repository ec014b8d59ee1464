"""Runs cgroups-exporter's own collector and server, in its own environment: `PORT GLOB`.

Each line on stdin is answered by the CPU seconds of one collection; in between it serves /metrics.
"""

import asyncio
import sys
import time

from aiomisc import entrypoint
from cgroups_exporter.services.collector import Collector
from cgroups_exporter.services.metrics import MetricsAPI


async def serve(collector):
    # The periodic service is never started: the benchmark says when to collect.
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        began = time.process_time()
        await collector.callback()
        print(time.process_time() - began, flush=True)


def main():
    api = MetricsAPI(address="127.0.0.1", port=int(sys.argv[1]), compression=True)
    collector = Collector(interval=3600, delay=0, cgroup_paths=[sys.argv[2]], max_workers=4)
    with entrypoint(api, pool_size=4, log_config=False) as loop:
        loop.run_until_complete(serve(collector))


if __name__ == "__main__":
    main()
