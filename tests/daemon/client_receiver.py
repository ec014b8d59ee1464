"""A real socket that stands for the daemon's."""

import json
import select
import socket
from pathlib import Path
from typing import Any

from oomcast.client.message import MAX_BYTES


class Receiver:
    """A socket at `path`, with room for as many datagrams as the kernel gives it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))

    def waits(self) -> bool:
        """Whether there is a message."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def read(self) -> list[dict[str, Any]]:
        """All that is there, each a JSON object of at most MAX_BYTES."""
        messages = []
        while self.waits():
            data = self._socket.recv(65536)
            assert len(data) <= MAX_BYTES
            messages.append(json.loads(data))
        return messages

    def close(self) -> None:
        self.die()
        self.path.unlink()

    def die(self) -> None:
        """Leaves its file."""
        self._socket.close()
