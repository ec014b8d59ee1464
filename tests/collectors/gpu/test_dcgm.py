"""What becomes of the page of a dcgm-exporter; tests/collectors/test_fetch*.py have what may go wrong on its way."""

import contextlib
import gzip
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from oomcast_collectors.gpu import dcgm
from oomcast_collectors.gpu.dcgm import Dcgm, DcgmError
from oomcast_collectors.gpu.settings import GpuSettings
from web_servers import Serve, sends, silent

PAGE = (Path(__file__).parents[2] / "fixtures" / "dcgm" / "default-4.8.prom").read_bytes()
USED = 130000 << 20
LOG = logging.getLogger("oomcast.gpu")


@contextlib.contextmanager
def exporter(url: str, timeout: float = 5.0) -> Iterator[Dcgm]:
    with contextlib.closing(Dcgm(url, LOG, timeout=timeout)) as found:
        yield found


def failure(url: str, timeout: float = 5.0) -> str:
    with exporter(url, timeout) as found, pytest.raises(DcgmError) as caught:
        found.poll()
    return str(caught.value)


def settings(**values: str) -> GpuSettings:
    return GpuSettings.model_validate(values)


def test_a_page_plain_and_packed(serve: Serve) -> None:
    for answer in (sends(PAGE), sends(gzip.compress(PAGE), "content-encoding: gzip")):
        server = serve(answer, keep=True)
        with exporter(server.url) as found:
            for _ in range(2):
                assert [gpu.memory.used for gpu in found.poll()] == [USED, 1 << 20]
        assert (len(server.requests), server.connections) == (2, 1)


def test_no_page(serve: Serve) -> None:
    url = serve(sends(b"", status="401 Unauthorized")).url
    assert failure(url.replace("//", "//me:secret@") + "?token=hidden") == f"{url}: HTTP 401"
    url = serve(silent).url
    assert failure(url, timeout=0.3) == f"{url}: no whole answer within 0.3 s"
    assert failure("metrics")


@pytest.mark.parametrize("body", [b"", b"<html>Grafana</html>\n", b"node_memory_MemFree_bytes 1\n", b"\xff\x00" * 1000])
def test_something_else_answers(serve: Serve, body: bytes) -> None:
    assert f"not a dcgm-exporter, no metric DCGM_FI_.. in {len(body)} bytes" in failure(serve(sends(body)).url)


def test_an_exporter_without_values_has_no_gpus(serve: Serve) -> None:
    body = b"# HELP DCGM_FI_DEV_SM_CLOCK SM clock\n# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    with exporter(serve(sends(body)).url) as found:
        assert found.poll() == ()


def test_bad_lines_are_told_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(sends(PAGE + b'DCGM_FI_DEV_FB_USED{gpu="x"} oops\n'))
    with exporter(server.url) as found:
        for _ in range(3):
            assert len(found.poll()) == 2
    (record,) = [record for record in caplog.records if record.name == LOG.name]
    assert (record.levelname, record.getMessage()) == ("WARNING", "a dcgm-exporter has lines that cannot be read")
    assert vars(record)["first"] == 'DCGM_FI_DEV_FB_USED{gpu="x"} oops'
    assert vars(record)["lines"] == 1


def test_find_takes_the_url_of_the_settings_unseen() -> None:
    assert dcgm.find(settings(dcgm_url="http://gpu-node:9400/metrics"), LOG) == "http://gpu-node:9400/metrics"


def test_find_tries_the_default(serve: Serve) -> None:
    good, other = serve(sends(PAGE)), serve(sends(b"node_load1 1\n"))
    assert dcgm.find(settings(), LOG, default=good.url) == good.url
    assert dcgm.find(settings(), LOG, default=other.url) is None
    other.close()
    assert dcgm.find(settings(), LOG, default=other.url) is None


def test_the_default_is_this_node() -> None:
    assert dcgm.DEFAULT_URL == "http://127.0.0.1:9400/metrics"
