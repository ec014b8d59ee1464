"""GPUs as a dcgm-exporter on loopback has them, where the driver's library cannot be used."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collectors.gpu.driver import LIBRARY, FakeDriver
from e2e.gpus import Gpus, daemon, gpus
from e2e.program import until
from e2e.stack import free_port
from requires import needs

PAGES = Path(__file__).parents[1] / "fixtures" / "dcgm"
A = "GPU-00000000-6b1f-4c51-9d0e-000000000000"
B = "GPU-11111111-6b1f-4c51-9d0e-000000000001"
MIB = 1 << 20


class Exporter:
    """Serves a page of tests/fixtures/dcgm. requests: how often it was asked."""

    def __init__(self, page: str) -> None:
        self.page = (PAGES / f"{page}.prom").read_text()
        self.requests = 0
        self.port = free_port()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.requests += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(exporter.page.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="test-dcgm", daemon=True).start()

    def stop(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def says(self, metric: str, uuid: str, value: str) -> None:
        """Changes the value of `metric` of one GPU."""
        self.page, changed = re.subn(
            rf'^({metric}{{[^}}]*"{uuid}"[^}}]*}}) \S+$', rf"\g<1> {value}", self.page, flags=re.MULTILINE
        )
        assert changed == 1


@contextmanager
def exporting(page: str) -> Iterator[Exporter]:
    exporter = Exporter(page)
    exporter.start()
    try:
        yield exporter
    finally:
        exporter.stop()


def settings(exporter: Exporter) -> str:
    return f'dcgm_url: "http://127.0.0.1:{exporter.port}/metrics", dcgm_period: 1'


@contextmanager
def node(exporter: Exporter, directory: Path) -> Iterator[Gpus]:
    """A daemon on a machine without the driver's library."""
    nowhere = directory / "empty"
    nowhere.mkdir()
    with daemon(FakeDriver(directory, nowhere / LIBRARY), directory, settings(exporter)) as running:
        until(lambda: running.value("collector_up", collector="gpu") == 1)
        yield running


def memory(running: Gpus, gpu: str) -> Mapping[str, float]:
    """Bytes of each part that is told, in MiB."""
    parts = ("used", "free", "reserved", "total", "used_peak", "free_min")
    found = {part: running.value(f"gpu_memory_{part}_bytes", gpu=gpu) for part in parts}
    return {part: value / MIB for part, value in found.items() if value is not None}


WHOLE = {"used": 130000, "free": 12770, "reserved": 1001, "total": 143771, "used_peak": 130000, "free_min": 12770}


@pytest.mark.parametrize(
    ("page", "expected", "driver"),
    [
        ("default-4.8", WHOLE, "580.95.05"),
        ("csv-4.8", WHOLE, "580.95.05"),  # with the total, without the reserved
        ("renamed-4.7", {part: pytest.approx(value, abs=0.001) for part, value in WHOLE.items()}, "590.44.01"),
        # Neither: there is no telling what is usable, nor whether a reading can be true.
        ("pods-4.8", {"used": 130000, "free": 12770}, "580.95.05"),
        ("names-1.x", {"used": 2160, "free": 14000}, None),
    ],
)
def test_each_release_of_the_exporter_gives_the_series_of_the_driver(
    tmp_path: Path, page: str, expected: Mapping[str, float], driver: str | None
) -> None:
    with exporting(page) as exporter, node(exporter, tmp_path) as running:
        assert memory(running, A) == expected
        info = dict(next(iter(running.all("gpu_info", gpu=A))))
        assert (info["source"], info["index"], info.get("driver")) == ("dcgm", "0", driver)
        assert running.value("gpu_up", gpu=A) == 1
        assert running.value("gpu_library_inits_total") is None


def test_a_page_with_mig_keeps_instances_apart(tmp_path: Path) -> None:
    with exporting("mig-4.2") as exporter, node(exporter, tmp_path) as running:
        assert memory(running, A) == {}
        assert memory(running, B)["used"] == 1
        used = running.all("gpu_mig_memory_used_bytes", gpu=A)
        assert {dict(labels)["gpu_instance"]: value / MIB for labels, value in used.items()} == {"2": 12, "9": 5000}
        assert running.value("gpu_mig_memory_total_bytes", gpu=A, gpu_instance="9") == (5000 + 11000 + 384) * MIB
        assert running.value("gpu_mig_info", gpu=A, gpu_instance="2", profile="4g.71gb") == 1


def test_an_xid_counts_once_when_it_changes(tmp_path: Path) -> None:
    with exporting("default-4.8") as exporter, node(exporter, tmp_path) as running:
        until(lambda: running.value("xid_errors_total", gpu=B, xid="79") == 0)
        asked = exporter.requests
        exporter.says("DCGM_FI_DEV_XID_ERRORS", B, "79")
        until(lambda: running.value("xid_errors_total", gpu=B, xid="79") == 1)
        until(lambda: exporter.requests >= asked + 3)
        assert running.value("xid_errors_total", gpu=B, xid="79") == 1
        exporter.says("DCGM_FI_DEV_XID_ERRORS", B, "31")
        until(lambda: running.value("xid_errors_total", gpu=B, xid="31") == 1)
        # What DCGM had when we came may be years old.
        assert running.value("xid_errors_total", gpu=B, xid="13") is None
        assert running.value("xid_errors_total", gpu=A, xid="79") == 0


def test_an_exporter_that_goes_takes_its_series_along_and_may_come_back(tmp_path: Path) -> None:
    with exporting("default-4.8") as exporter, node(exporter, tmp_path) as running:
        assert running.value("gpus") == 2
        exporter.stop()
        until(lambda: running.value("collector_up", collector="gpu") == 0)
        assert running.all("gpu_memory_used_bytes") == running.all("gpu_info") == running.all("gpu_up") == {}
        assert running.value("gpus") is None
        assert "cannot connect" in running.daemon.log
        exporter.says("DCGM_FI_DEV_FB_USED", A, "129999")
        exporter.start()
        until(lambda: memory(running, A).get("used") == 129999)
        assert running.value("collector_up", collector="gpu") == 1


@needs("cc")
def test_nobody_asks_an_exporter_where_there_is_a_driver(driver: FakeDriver, tmp_path: Path) -> None:
    with exporting("default-4.8") as exporter:
        with gpus(driver, tmp_path, settings(exporter)) as running:
            until(lambda: (running.value("collector_runs_total", collector="gpu", outcome="success") or 0) >= 4)
            assert (exporter.requests, running.info(0)["source"]) == (0, "nvml")
        with daemon(driver, tmp_path, f"{settings(exporter)}, source: dcgm") as running:
            until(lambda: running.value("gpu_up", gpu=A) == 1)
            assert running.info(0) == {}
            assert running.value("gpu_library_inits_total") is None


@needs("cc")
def test_the_driver_and_the_exporter_say_the_same_of_a_gpu(driver: FakeDriver, tmp_path: Path) -> None:
    """But for what only the driver tells: its calls, processes, NVLink, and how the memory is asked for."""
    used, reserved = 130000 * MIB, 1001 * MIB
    driver.gpus = driver.gpus[:1]
    driver.gpus[0].set(uuid=A, busid="00000000:3B:00.0", total=143771 * MIB, reserved=reserved, used=used)
    driver.gpus[0].set(util=97, memutil=41, temp=64, memtemp=58, sm=1980, mem=3201, remap=(4, 2, 1, 1), recovery=3)
    driver.gpus[0].set(power_mw=612345, enforced_limit_mw=650000, energy_mj=98765432101, ecc_volatile_corrected=21)
    driver.gpus[0].set(ecc_volatile_uncorrected=22, pcie_tx_bytes=123456789012345, pcie_rx_bytes=987654321098765)
    driver.write()
    with gpus(driver, tmp_path, "slow_period: 1") as running:
        until(lambda: running.value("gpu_memory_unattributed_bytes", gpu=A) is not None)
        ours = of_gpu(running)
    with exporting("default-4.8") as exporter:
        exporter.page = one_gpu(exporter.page) + one_gpu((PAGES / "csv-4.8.prom").read_text())
        with node(exporter, tmp_path) as running:
            theirs = of_gpu(running)
    only_ours = {name for name, _ in ours.keys() - theirs.keys()}
    assert only_ours == {
        *("oomcast_gpu_handovers_total", "oomcast_gpu_memory_call_seconds_total", "oomcast_gpu_unsupported_fields"),
        *("oomcast_gpu_processes", "oomcast_gpu_processes_unresolved", "oomcast_gpu_memory_unattributed_bytes"),
        *("oomcast_gpu_nvlink_bytes_total", "oomcast_gpu_info"),
    }
    assert {name for name, _ in theirs.keys() - ours.keys()} == {"oomcast_gpu_info"}
    same = ours.keys() & theirs.keys()
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}


def of_gpu(running: Gpus) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series of the collector with the label of the GPU, but for how often it was read."""
    return {
        (name, labels): value
        for (name, labels), value in running.scrape().items()
        if name.startswith("oomcast_gpu_") and "sampling" not in name and ("gpu", A) in labels
    }


def one_gpu(page: str) -> str:
    return "".join(line for line in page.splitlines(keepends=True) if B not in line)
