"""What the daemon tells systemd (sd_notify). Without systemd nothing is sent; nothing here raises or blocks."""

import logging
import os
import socket
import time
from collections.abc import Mapping

_MAX_STATUS = 500


class Notifier:
    """environ: where systemd puts NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. All methods return whether the
    message was handed over: False without systemd, and when its socket is full or gone."""

    def __init__(self, environ: Mapping[str, str], log: logging.Logger | None = None) -> None:
        self._log = log or logging.getLogger("oomcast.notify")
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._failed = False
        if self._address is None and environ.get("NOTIFY_SOCKET"):
            self._log.warning("NOTIFY_SOCKET is neither a path nor an abstract name, systemd is not notified")
        self.watchdog_interval = _watchdog_seconds(environ)
        """Seconds between two calls of `watchdog()`, half of what systemd allows; None when it does not watch."""

    def ready(self, status: str = "") -> bool:
        """Start-up, or a reload, is complete."""
        return self._send("READY=1", *_status(status))

    def reloading(self) -> bool:
        # Type=notify-reload takes the message only with the time of it, on systemd's clock.
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str = "") -> bool:
        return self._send("STOPPING=1", *_status(status))

    def status(self, text: str) -> bool:
        """The line that `systemctl status` shows."""
        return self._send(*_status(text or " "))

    def watchdog(self) -> bool:
        return self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> bool:
        if self._address is None:
            return False
        try:
            # A socket for each message: a kept one would stay connected to a manager that was replaced.
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
                sender.sendto("\n".join(lines).encode("utf-8", "replace"), flags, self._address)
        except (OSError, ValueError) as error:
            if not self._failed:
                self._log.warning("systemd cannot be notified: %s", error)
            self._failed = True
            return False
        self._failed = False
        return True


def _address(text: str) -> str | None:
    if text.startswith("@") and len(text) > 1:
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _status(text: str) -> tuple[str, ...]:
    # A line break in it would start another assignment, such as MAINPID=.
    line = "".join(c if c.isprintable() else " " for c in text[:_MAX_STATUS])
    return (f"STATUS={line}",) if line else ()


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) > 0):
        return None
    return int(text) / 2e6
