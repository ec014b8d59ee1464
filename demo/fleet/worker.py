"""What holds an engine's GPU memory: a process of its own, with the name of vLLM's, until the node ends it.

Run as a program with -S -E, as it needs nothing and there are many.
"""

import subprocess
import sys
from pathlib import Path

_NAME = "VLLM::EngineCor"
"""As the kernel cuts it."""


class Worker:
    """It ends with the process that started it, however that ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-S", "-E", __file__]
        # A session of its own: Ctrl-C is for who plays.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        self.pid = self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    Path("/proc/self/comm").write_text(_NAME)
    sys.stdin.read()
