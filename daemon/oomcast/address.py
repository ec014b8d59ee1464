"""The address to listen on, as the settings have it."""

import re

_LISTEN = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:\[\]/]*)):(?P<port>[0-9]{1,5})\Z")


def listen_address(text: str) -> tuple[str, int]:
    """host, port of `host:port`, `[v6]:port` or `:port` (host "", every address). Raises ValueError."""
    match = _LISTEN.match(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("should be host:port, [IPv6]:port or :port with a port from 0 to 65535")
    return match["v6"] or match["host"] or "", int(match["port"])
