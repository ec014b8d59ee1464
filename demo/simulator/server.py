"""The engine's HTTP server, on loopback: what a daemon that watches it asks for."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from simulator.engine import Engine
from simulator.page import VERSION

CLIENT_SECONDS = 10.0
"""For a client to say what it wants, and to take it."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Server:
    """Serves /metrics, /v1/models, /version and /health of `engine` while it is started.

    port: 0 for any that is free. While it is stopped connections are refused, as those to a process that died. It can
    be started again, at the same port, also with another engine: `engine` may be set at any time.
    """

    def __init__(self, engine: Engine, port: int = 0) -> None:
        self.engine = engine
        self.port = port
        self._http: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Raises OSError if the port is taken."""
        assert self._http is None
        self._http = http = _Http(self)
        self.port = http.server_address[1]
        threading.Thread(target=http.serve_forever, args=(0.05,), name="simulator", daemon=True).start()

    def stop(self) -> None:
        """Once it returns, connections are refused. Does nothing if it was stopped already."""
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """The content type and the body for a path, None if there is nothing at it."""
        config = self.engine.config
        match path:
            case "/metrics":
                return _TEXT, self.engine.page()
            case "/v1/models":
                model = {"id": config.model, "object": "model", "max_model_len": config.max_model_len}
                return _json({"object": "list", "data": [model]})
            case "/version":
                return _json({"version": VERSION})
            case "/health":
                return _TEXT, b""
        return None


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    # What it was doing for clients ends with the process; a stop does not wait for them.
    block_on_close = False

    def __init__(self, server: Server) -> None:
        self.owner = server
        super().__init__(("127.0.0.1", server.port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    timeout = CLIENT_SECONDS

    def do_GET(self) -> None:
        answer = self.server.owner.answer(self.path.partition("?")[0])
        kind, body = answer or (_TEXT, b"Not Found\n")
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is nothing to tell."""


def _json(value: object) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()
