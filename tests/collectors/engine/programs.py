"""Servers in processes of their own, as discovery meets them: named, listening, in pods, ending."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures/engines"

# argv: name, address, number of ports, port (0: any that is not ephemeral), how it answers, file for the requests.
# stdin: the page to answer with from now on, nothing for 503.
_SERVER = """
import os, random, socket, socketserver, sys, threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

name, address, number, port, how, requests = sys.argv[1:]
body = b""
lock = threading.Lock()

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with lock, open(requests, "a") as file:
            file.write(f"{self.server.server_address[1]}{self.path}\\n")
        found = body and self.path == "/metrics"
        self.send_response(200 if found else 404 if body else 503)
        self.end_headers()
        self.wfile.write(body if found else b"")
    def log_message(self, *rest):
        pass

class Broken(socketserver.BaseRequestHandler):
    def handle(self):
        with lock, open(requests, "a") as file:
            file.write("connection\\n")
        self.request.recv(9999)
        self.request.sendall(b"SSH-2.0-OpenSSH_9.6\\r\\n")

class Hanging(socketserver.BaseRequestHandler):
    def handle(self):
        threading.Event().wait()

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
    def server_bind(self):
        if how == "v6only":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()

handler = {"broken": Broken, "hanging": Hanging}.get(how, Handler)
servers = []
while len(servers) < int(number):
    try:
        servers.append(Server((address, int(port) or random.randrange(20000, 30000)), handler))
    except OSError:
        if int(port):
            raise
Path("/proc/self/comm").write_text(name)
for server in servers:
    threading.Thread(target=server.serve_forever, daemon=True).start()
if how == "forked" and os.fork() == 0:
    threading.Event().wait()
print(*(server.server_address[1] for server in servers), flush=True)
for line in sys.stdin:
    body = Path(line.strip()).read_bytes() if line.strip() else b""
    print("answers so", flush=True)
"""


class Program:
    """A server. name: its process', 15 characters. requests: port and path of each request, in order."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        address: str = "127.0.0.1",
        ports: int = 1,
        port: int = 0,
        how: str = "http",
        around: tuple[str, ...] = (),
    ) -> None:
        self._requests = folder / f"requests-{random.randrange(1 << 32):x}"
        self.process = subprocess.Popen(
            [*around, sys.executable, "-c", _SERVER, name, address, str(ports), str(port), how, str(self._requests)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.pid = self.process.pid
        self.ports = [int(port) for port in self._line().split()]
        self.port = self.ports[0]

    @property
    def requests(self) -> list[str]:
        return self._requests.read_text().splitlines() if self._requests.exists() else []

    def serve(self, page: str) -> "Program":
        """page: a fixture's name; "" answers 503."""
        assert self.process.stdin
        self.process.stdin.write(f"{FIXTURES / page if page else ''}\n")
        self.process.stdin.flush()
        assert self._line() == "answers so\n"
        return self

    def end(self) -> None:
        self.process.kill()
        with self.process:
            pass

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()


@contextmanager
def ending() -> Iterator[list[Program]]:
    """Ends those in the list, with what they forked."""
    started: list[Program] = []
    try:
        yield started
    finally:
        for program in started:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.end()


def unused_port() -> int:
    """That nobody listens on, and that is not ephemeral."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) != 0:
                return port
