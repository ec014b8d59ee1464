"""Engines that serve recorded pages, which a test changes at will, and the real daemon that watches them."""

import gzip
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from e2e.program import Program, program, until
from e2e.stack import fetch, free_port

PAGES = Path(__file__).parents[1] / "fixtures" / "engines"
OTHERS = ", ".join(
    f"{name}: {{enabled: false}}" for name in ("cgroup", "ebpf", "engine_log", "gpu", "host", "kernel_log", "requests")
)

Script = Callable[[BaseHTTPRequestHandler], None]
"""Answers a request in whatever way it likes."""


def page(name: str) -> bytes:
    """Of a file in tests/fixtures/engines, without its ending."""
    return (PAGES / f"{name}.prom").read_bytes()


class Engine:
    """pages: by path, or a script that answers; 404 for others. status: by path, instead of 200. token: without it 401.
    packed: with gzip. requests: by path, how often it was asked.
    """

    def __init__(self, capture: str = "") -> None:
        self.port = free_port()
        self.pages: dict[str, bytes | Script] = {"/metrics": page(capture)} if capture else {}
        self.status: dict[str, int] = {}
        self.token = ""
        self.packed = False
        self.requests = Counter[str]()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def says(self, **values: float) -> None:
        """Changes the values of metrics of vLLM, those of all series of each."""
        page = self.pages["/metrics"]
        assert isinstance(page, bytes)
        for metric, value in values.items():
            line = rb"^((?:vllm:)?%b(?:\{[^}]*\})?) \S+$" % metric.encode()
            page, changed = re.subn(line, rb"\g<1> %b" % repr(value).encode(), page, flags=re.MULTILINE)
            assert changed > 0, metric
        self.pages["/metrics"] = page

    def counts(self, metric: str, gained: float) -> None:
        """The values of all series of a metric rise."""
        page = self.pages["/metrics"]
        assert isinstance(page, bytes)
        line = rb"^(%b(?:\{[^}]*\})?) (\S+)$" % metric.encode()
        self.pages["/metrics"] = re.sub(
            line, lambda found: b"%b %b" % (found[1], repr(float(found[2]) + gained).encode()), page, flags=re.MULTILINE
        )

    def starts_anew(self, capture: str) -> None:
        """Another process of the same kind or another one, in the same place."""
        self.stop()
        self.pages["/metrics"] = page(capture)
        self.start()

    def start(self) -> None:
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), name="test-engine", daemon=True).start()

    def stop(self) -> None:
        """Kept connections are closed too."""
        self.hang(False)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.hang_up()
            self._server = None

    def hang(self, hangs: bool = True) -> None:
        """From now on no request is answered, until it is called with False."""
        if hangs:
            self._goes_on.clear()
        else:
            self._goes_on.set()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests[request.path] += 1
        self._goes_on.wait()
        found = self.pages.get(request.path)
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            send(request, b"", 401)
        elif found is None:
            send(request, b"", 404)
        elif isinstance(found, bytes):
            send(request, found, self.status.get(request.path, 200), packed=self.packed)
        else:
            found(request)


def send(request: BaseHTTPRequestHandler, body: bytes, status: int = 200, *, packed: bool = False) -> None:
    body = gzip.compress(body) if packed else body
    request.send_response(status)
    if packed:
        request.send_header("content-encoding", "gzip")
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, engine: Engine) -> None:
        self.connections: set[socket.socket] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                server.connections.add(self.connection)

            def finish(self) -> None:
                server.connections.discard(self.connection)
                with suppress(OSError):  # the other end has gone
                    super().finish()

            def do_GET(self) -> None:
                try:
                    engine.answer(self)
                except OSError:  # the daemon had enough of it
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", engine.port), Handler)

    def hang_up(self) -> None:
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that was cut in the midst of a request."""


@contextmanager
def serving(*captures: str) -> Iterator[list[Engine]]:
    """Engines that have started, one for each capture."""
    with ExitStack() as stack:
        engines = [Engine(capture) for capture in captures]
        for engine in engines:
            engine.start()
            stack.callback(engine.stop)
        yield engines


class Node:
    """What the daemon says of its engines."""

    def __init__(self, daemon: Program) -> None:
        self.daemon = daemon

    def text(self) -> str:
        return fetch(f"{self.daemon.url}/metrics")

    def looks(self, engine: Engine, count: int = 2) -> None:
        """Waits until the engine's page was asked for so many times more, and what it said then is published."""
        wanted = engine.requests["/metrics"] + count
        until(lambda: engine.requests["/metrics"] >= wanted)
        runs = self.runs
        until(lambda: self.runs >= runs + 2)

    @property
    def runs(self) -> float:
        return self.daemon.value("oomcast_collector_runs_total", 'collector="engine",outcome="success"') or 0

    def up(self, engine: str) -> bool:
        return self.value("engine_up", engine) == 1

    def value(self, name: str, engine: str, **labels: str) -> float | None:
        """Of oomcast_<name> of that engine, None where it is absent. labels: in addition."""
        pairs = sorted({"engine": engine, **labels}.items())
        return self.daemon.value(f"oomcast_{name}", ",".join(f'{key}="{value}"' for key, value in pairs))

    def state(self, engine: str) -> str | None:
        """The state that it is in, None without one."""
        for line in self.text().splitlines():
            if line.startswith(f'oomcast_engine_state{{engine="{engine}"') and line.endswith(" 1.0"):
                return line.rpartition('oomcast_engine_state="')[2].partition('"')[0]
        return None


def endpoint(engine: Engine, name: str, **more: object) -> str:
    """As YAML."""
    given: Mapping[str, object] = {"url": f'"{engine.url}"', "name": name, **more}
    return f"{{{', '.join(f'{key}: {value}' for key, value in given.items())}}}"


def settings(*endpoints: str, slo: str = "{}", **more: object) -> str:
    """slo: that section, as YAML in one line. more: settings of the collector."""
    given: Mapping[str, object] = {"period": 0.5, "interval": 0.25, **more}
    own = ", ".join(f"{key}: {value}" for key, value in given.items())
    return f"slo: {slo}\ncollectors: {{{OTHERS}, engine: {{endpoints: [{', '.join(endpoints)}], {own}}}}}\n"


@contextmanager
def watching(directory: Path, *endpoints: str, slo: str = "{}", **more: object) -> Iterator[Node]:
    """The daemon, ready, with these endpoints and settings."""
    with program(directory, settings(*endpoints, slo=slo, **more)) as running:
        yield Node(running)
