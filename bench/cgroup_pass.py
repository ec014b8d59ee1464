"""One pass over many cgroups: our collector beside a C program that only reads the same files, and beside peers."""

import logging
import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from machine import HERE, MB, Child, background, child, cpu, free_port, get, median, series, table, verdict, wait_for
from oomcast.contract import Context, Roots
from oomcast.forecast import METRICS as FORECAST
from oomcast.forecast import Forecaster
from oomcast.metric import Sample
from oomcast.pipeline import Pipeline
from oomcast.reconcile import METRICS as KILLS
from oomcast.reconcile import Reconciler
from oomcast.store import Store
from oomcast.timeline import METRICS as TIMELINE
from oomcast.timeline import Timeline
from oomcast_collectors.cgroup import SPEC, CgroupCollector, CgroupSettings
from oomcast_collectors.cgroup.version import V1, V2
from owned import Owned, owned
from peers import Missing, cgroups_exporter, node_exporter

COUNTS = (200, 2000)
SHARES = (0.0, 0.1, 1.0)
TARGET = 2.0
_WARM = 5
_COLUMNS = (
    "cgroups", "changed", "C floor", "collect + put", "ratio", "of means", "of minima", "<= 2.0", "+ forecast", "ratio"
)  # fmt: skip


class _Seconds:
    """A clock that goes on by a second for each pass, so that what is due now and then comes as often as it would."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 1_700_000_000

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class _TimedStore(Store):
    """Notes when the collector's samples were in: what comes after that in the pipeline is the forecast."""

    put_at = 0.0

    def put(self, source: str, samples: Iterable[Sample], began: float = math.inf) -> None:
        super().put(source, samples, began)
        if source == SPEC.name:
            self.put_at = time.process_time()


class _Ours:
    """The collector and the pipeline behind it, as the daemon has them."""

    def __init__(self, cgroups: Owned) -> None:
        self._clock = _Seconds()
        log = logging.getLogger("bench")
        context = Context(Roots(), self._clock, log, lambda facts: None, ("vllm*",))
        settings = {"include": [f"{cgroups.path}/*"], "max_cgroups": 20_000}
        self._collector = CgroupCollector(CgroupSettings.model_validate(settings), context)
        self._store = _TimedStore([*SPEC.metrics, *FORECAST, *KILLS, *TIMELINE])
        reconciler = Reconciler(self._clock, lambda path: path, log)
        self._pipeline = Pipeline(self._store, Forecaster(), Timeline(), reconciler, self._clock)

    def once(self) -> tuple[float, float]:
        """CPU seconds of one pass: until the samples are in the store, and with the forecast."""
        self._clock.now += 1
        began = time.process_time()
        self._pipeline.accept(SPEC.name, self._collector.collect())
        return self._store.put_at - began, time.process_time() - began

    def stop(self) -> None:
        self._collector.stop(self._clock.now + 1)


@contextmanager
def _floor(cgroups: Owned) -> Iterator[Child]:
    version = V1() if cgroups.version == 1 else V2(swap=False, local_events=False)
    # The parent is read by the collector too, for the limit that it may have.
    paths = [d / name for d in (cgroups.parent, *cgroups.directories) for name, _ in version.files]
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("there is no C compiler for the floor")
    with tempfile.TemporaryDirectory(prefix="oomcast-bench-") as directory:
        program, names = Path(directory, "floor"), Path(directory, "paths")
        subprocess.run([compiler, "-O2", "-o", program, HERE / "floor.c"], check=True)
        names.write_text("".join(f"{path}\n" for path in paths if path.exists()))
        with child([program, names]) as reader:
            yield reader


def run(repeats: int = 30) -> None:
    """Prints the tables."""
    rows: list[list[object]] = []
    peers: list[list[object]] = []
    for count in COUNTS:
        with owned(count) as cgroups:
            with _floor(cgroups) as floor:
                rows += [_compare(cgroups, floor, share, repeats) for share in SHARES]
            peers.append(_cgroups_exporter(cgroups))
    peers.append(_node_exporter())
    table(f"cgroup pass: CPU ms per pass, medians of {repeats} interleaved passes", _COLUMNS, rows)
    table("peers: CPU ms", ("program", "cgroups", "per collection", "per scrape", "series", "MB per scrape"), peers)


def _compare(cgroups: Owned, floor: Child, share: float, repeats: int) -> list[object]:
    ours = _Ours(cgroups)
    least, put, whole = [], [], []
    for i in range(_WARM + repeats):
        # Each reader has its own change before it, and is first every other time: the first to read after a change
        # pays for the kernel's summing up.
        for reader in ("floor", "ours") if i % 2 else ("ours", "floor"):
            cgroups.change(share)
            if reader == "floor":
                least.append(int(floor.ask().split()[0]) / 1e6)
            else:
                put_seconds, whole_seconds = ours.once()
                put.append(put_seconds * 1e3)
                whole.append(whole_seconds * 1e3)
    ours.stop()
    floor_ms, put_ms, whole_ms = (median(taken[_WARM:]) for taken in (least, put, whole))
    mean = sum(put[_WARM:]) / sum(least[_WARM:])
    best = min(put[_WARM:]) / min(least[_WARM:])
    return [
        len(cgroups.directories), f"{share:.0%}", f"{floor_ms:.2f}", f"{put_ms:.2f}", f"{put_ms / floor_ms:.2f}",
        f"{mean:.2f}", f"{best:.2f}", verdict(put_ms / floor_ms, TARGET), f"{whole_ms:.2f}",
        f"{whole_ms / floor_ms:.2f}",
    ]  # fmt: skip


def _cgroups_exporter(cgroups: Owned) -> list[object]:
    name, count = "cgroups-exporter 0.8.8", len(cgroups.directories)
    try:
        python = cgroups_exporter()
    except Missing as reason:
        return [name, count, f"not installed: {reason}", "", "", ""]
    port = free_port()
    with child([python, HERE / "drive_cgroups_exporter.py", str(port), f"{cgroups.parent}/*"], quiet=True) as peer:
        collections = [float(peer.ask()) for _ in range(3)]
        scrapes, body = _scrapes(peer.pid, port, 3)
    return _peer_row(name, count, f"{median(collections) * 1e3:.0f}", scrapes, body)


def _node_exporter() -> list[object]:
    name = "node_exporter (host only)"
    try:
        program = node_exporter()
    except Missing as reason:
        return [name, "", f"not installed: {reason}", "", "", ""]
    port = free_port()
    with background([program, f"--web.listen-address=127.0.0.1:{port}"]) as pid:
        wait_for(port)
        scrapes, body = _scrapes(pid, port, 10)
    return _peer_row(name, "", "it collects as it is scraped", scrapes, body)


def _scrapes(pid: int, port: int, repeats: int) -> tuple[float, bytes]:
    taken = []
    for _ in range(repeats):
        began = cpu(pid)
        _, body = get(port, headers={"Accept-Encoding": "identity"})
        time.sleep(0.05)
        taken.append(cpu(pid) - began)
    return median(taken), body


def _peer_row(name: str, count: object, collection: str, scrape: float, body: bytes) -> list[object]:
    return [name, count, collection, f"{scrape * 1e3:.1f}", series(body), f"{len(body) / MB:.2f}"]
