"""One node, as a program: `python -m fleet SPEC DIRECTORY LIBRARY`. fleet.nodes starts it.

On its output each line is a moment, as JSON: its name, `at` in monotonic seconds, and with the first, "ready", the
addresses of `daemon` and `engine`. A line on its input begins the play, the end of the input ends everything.
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from fleet.plays import play
from fleet.site import Site
from fleet.spec import parsed


def main() -> int:
    """Ends with status 0 whatever the play was; an exception is a defect."""
    # Who started it ends it, by its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec, directory, library = parsed(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    stopping = threading.Event()
    with ExitStack() as parts:
        site = Site(spec, directory, library, parts, stopping)
        _tell("ready", time.monotonic(), daemon=site.url, engine=site.engine)
        if not sys.stdin.readline():
            return 0
        threading.Thread(target=_watch, args=(stopping,), name="input", daemon=True).start()
        play(site, _tell)
        stopping.wait()
    return 0


def _watch(stopping: threading.Event) -> None:
    sys.stdin.read()
    stopping.set()


def _tell(moment: str, at: float, **more: str) -> None:
    # Not print: at the end of a program that nobody listens to any more there is nobody to tell.
    line = json.dumps({"moment": moment, "at": at, **more})
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
