"""The GPUs as a dcgm-exporter on this node tells them, for machines where NVML itself cannot be used.

A poll may take as long as its timeout: this is for a thread of the collector, never for a run or a scrape.
"""

import contextlib
import logging
from collections.abc import Sequence

from oomcast.logs import OnChange
from oomcast_collectors.fetch import Fetcher, FetchError
from oomcast_collectors.gpu.dcgm_text import DcgmGpu, Page, is_page, parse
from oomcast_collectors.gpu.settings import GpuSettings

DEFAULT_URL = "http://127.0.0.1:9400/metrics"

_PROBE_SECONDS = 1.0


class DcgmError(Exception):
    """Why there are no readings, in words. It names the exporter without user and password."""


class Dcgm:
    """One dcgm-exporter, for one thread at a time. timeout: seconds in which the whole page has to be here."""

    def __init__(self, url: str, log: logging.Logger, *, timeout: float = 4.0) -> None:
        self._fetcher = Fetcher(url, timeout=timeout)
        self._name = self._fetcher.name
        self._told = OnChange(log)

    def poll(self) -> Sequence[DcgmGpu]:
        """The GPUs of now, by index. Raises DcgmError."""
        try:
            body = self._fetcher.get()
        except FetchError as error:
            raise DcgmError(str(error)) from error
        if not is_page(body):
            raise DcgmError(f"{self._name}: not a dcgm-exporter, no metric DCGM_FI_.. in {len(body)} bytes")
        page = parse(body)
        self._tell(page)
        return page.gpus

    def close(self) -> None:
        self._fetcher.close()

    def _tell(self, page: Page) -> None:
        if page.malformed:
            extra = {"url": self._name, "lines": page.malformed, "first": page.example}
            self._told.report("lines", True, logging.WARNING, "a dcgm-exporter has lines that cannot be read", extra)
        else:
            self._told.report("lines", False, logging.DEBUG, "all lines of the dcgm-exporter can be read")


def find(settings: GpuSettings, log: logging.Logger, *, default: str = DEFAULT_URL) -> str | None:
    """The URL of the settings, answered or not; else `default` if a dcgm-exporter answers there within a second."""
    if settings.dcgm_url:
        return settings.dcgm_url
    try:
        with contextlib.closing(Dcgm(default, log, timeout=_PROBE_SECONDS)) as exporter:
            exporter.poll()
    except DcgmError as error:
        log.debug("no dcgm-exporter found: %s", error)
        return None
    return default
