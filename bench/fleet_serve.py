"""Serves the pages of many nodes: `fleet_serve.py DIRECTORY PORT NODES`.

DIRECTORY has the recorded pages, as fleet_record writes them. Each node has an address of its own on loopback, and one
port for all; one that is silent has none. Each line on stdin is answered by one of JSON: requests, bytes of text and
bytes as sent so far, and the CPU seconds that it took.
"""

import asyncio
import json
import sys
import threading
import time
import zlib
from functools import partial
from pathlib import Path

from fleet_pages import Player, Script, read

_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 1
"""As the daemon has it."""


def address(node: int) -> str:
    """127.1.0.1 and on: all of 127.0.0.0/8 is this machine."""
    return f"127.{1 + node // 62_500}.{node % 62_500 // 250}.{1 + node % 250}"


class Served:
    """What was served so far."""

    def __init__(self) -> None:
        self.requests = self.text = self.sent = 0

    def told(self) -> str:
        told = {"requests": self.requests, "text": self.text, "sent": self.sent, "cpu": time.process_time()}
        return json.dumps(told)


class Connection(asyncio.Protocol):
    """HTTP as far as one Prometheus asks for it: GET, one at a time, kept."""

    def __init__(self, player: Player, kind: str, served: Served) -> None:
        self._player = player
        self._kind = kind
        self._served = served
        self._asked = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked:
            request, _, self._asked = self._asked.partition(b"\r\n\r\n")
            self._answer(b"gzip" in request)

    def _answer(self, gzip: bool) -> None:
        body = self._player.page(time.time())  # noqa: TID251 - what pages say is UTC
        self._served.text += len(body)
        more = ""
        if gzip:
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            body = packer.compress(body) + packer.flush()
            more = "content-encoding: gzip\r\n"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {self._kind}\r\n{more}content-length: {len(body)}\r\n\r\n".encode()
        self._served.requests += 1
        self._served.sent += len(head) + len(body)
        self._transport.write(head + body)


async def main(directory: Path, port: int, nodes: int) -> None:
    recorded = json.loads((directory / "recorded.json").read_text())
    script = Script(read(directory))
    served = Served()
    loop = asyncio.get_running_loop()
    for number in range(nodes):
        player = Player(script, number)
        if player.trouble != "silent":
            await loop.create_server(partial(Connection, player, recorded["kind"], served), address(number), port)
    ended = asyncio.Event()
    known = {"series": len(script.series), "left_out": script.left_out, "changing": script.changing}
    print(json.dumps(known), flush=True)
    threading.Thread(target=_listen, args=(loop, served, ended), daemon=True).start()
    await ended.wait()


def _listen(loop: asyncio.AbstractEventLoop, served: Served, ended: asyncio.Event) -> None:
    for _ in sys.stdin:
        print(served.told(), flush=True)
    loop.call_soon_threadsafe(ended.set)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
