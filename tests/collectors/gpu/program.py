"""A process that a test sends into the scripted driver, call by call."""

import json
import subprocess
import sys
from typing import Any

from collectors.gpu.driver import FakeDriver

CHILD = """
import json, sys, pynvml
from pynvml import *
names = {}
for line in sys.stdin:
    try:
        result = eval(line, globals(), names)
        print(json.dumps(result, default=lambda value: str(value)), flush=True)
    except NVMLError as error:
        print(json.dumps({"code": error.value}), flush=True)
"""


class Program:
    """A process that uses the driver. begin() sends an expression, end() is its value; a failure is {"code": n}."""

    def __init__(self, driver: FakeDriver, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            env={**driver.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, expression: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def __call__(self, expression: str) -> Any:
        self.begin(expression)
        return self.end()

    def keep(self, name: str, expression: str) -> Any:
        return self(f"str(names.__setitem__({name!r}, {expression}))")

    def finish(self) -> None:
        """Lets it come to its end by itself."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)

    def close(self) -> None:
        self.process.kill()
        with self.process:
            pass
