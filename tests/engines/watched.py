"""A real engine, the daemon that watches it, and what Prometheus would have of that."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from e2e.program import Program, program
from e2e.stack import fetch
from engines.scrapes import Scrapes, scrapes
from engines.server import Vllm, vllm

SCRAPE_SECONDS = 1.0
"""The longest that a page of the daemon may take, whatever the engine does, besides waiting for a CPU."""


class Watched(NamedTuple):
    engine: Vllm
    daemon: Program
    scrapes: Scrapes

    def shown(self, name: str, **labels: str) -> float | None:
        """The daemon's value for the engine, None where it has none. name: without oomcast_."""
        text = ",".join(f'{label}="{value}"' for label, value in sorted({"engine": "vllm", **labels}.items()))
        return self.daemon.value(f"oomcast_{name}", text)

    def info(self) -> str:
        """The labels of oomcast_engine_info, as they are written. Raises ValueError unless there is one series."""
        lines = fetch(f"{self.daemon.url}/metrics").splitlines()
        (info,) = (line for line in lines if line.startswith("oomcast_engine_info{"))
        return info

    def is_in(self, *states: str) -> bool:
        return any(self.shown("engine_state", oomcast_engine_state=state) == 1 for state in states)

    def check_scrapes(self) -> None:
        """That each page came, and soon, and that no counter fell from one to the next."""
        pages = self.scrapes.pages
        assert pages
        assert self.scrapes.failed == []
        assert max(page.took - page.starved for page in pages) < SCRAPE_SECONDS
        assert self.scrapes.fallen() == []


@contextmanager
def watched(directory: Path, model: Path, *flags: str) -> Iterator[Watched]:
    """A vLLM with these flags, which the daemon calls "vllm", once the daemon has had an answer of it."""
    with vllm(directory, model, *flags) as engine:
        settings = f"collectors: {{engine: {{endpoints: [{{url: '{engine.url}', name: vllm}}]}}}}"
        with program(directory, settings) as daemon, scrapes(daemon.url, daemon.process.pid) as pages:
            yield Watched(engine, daemon, pages)
