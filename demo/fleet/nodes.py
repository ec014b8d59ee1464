"""Starts nodes, listens to them, and ends them."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from collectors.gpu.driver import build
from fleet.spec import Spec
from incident.programs import Failed

ROOT = Path(__file__).parents[2]
_START_SECONDS = 60.0
_END_SECONDS = 20.0


class Member:
    """A node of the fleet. moments: monotonic seconds by name, in the order of their coming. daemon, engine: addresses.

    log: what went wrong in its process; the daemon's own log is next to it.
    """

    def __init__(self, spec: Spec, directory: Path, library: Path) -> None:
        self.spec = spec
        self.log = directory / "node.log"
        self.daemon = self.engine = ""
        self.moments: dict[str, float] = {}
        self._changed = threading.Condition()
        self._over = False
        parts = [str(ROOT / part) for part in ("demo", "tests")]
        path = os.pathsep.join([*parts, *filter(None, [os.environ.get("PYTHONPATH")])])
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fleet", spec.text(), str(directory), str(library)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
            )  # fmt: skip
        self._thread = threading.Thread(target=self._listen, name=f"fleet-{spec.name}", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Its play begins."""
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def wait(self, moment: str, seconds: float) -> float:
        """When it came. Raises Failed if it does not within so many seconds, or the node has ended."""
        with self._changed:
            self._changed.wait_for(lambda: moment in self.moments or self._over, seconds)
            if moment in self.moments:
                return self.moments[moment]
        came = ", ".join(self.moments) or "nothing"
        raise Failed(f"{self.spec.name}: no {moment!r}, but {came}\n{self.log.read_text(errors='replace')[-2000:]}")

    def end(self) -> None:
        """To be followed by `ended`."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def ended(self, seconds: float) -> None:
        """Waits for its end, and kills it after so many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                with self._changed:
                    if said["moment"] == "ready":
                        self.daemon, self.engine = said["daemon"], said["engine"]
                    self.moments[said["moment"]] = said["at"]
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Fleet(Mapping[str, Member]):
    """The nodes by name."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Member:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def begin(self) -> None:
        """All plays begin."""
        for member in self.values():
            member.begin()


@contextmanager
def fleet(directory: Path, specs: Sequence[Spec]) -> Iterator[Fleet]:
    """Nodes that are ready, and whose plays have not begun; their files are in `directory`, under their names.

    Raises Failed if one does not start, CalledProcessError without a C compiler.
    """
    library = build(directory)
    with ExitStack() as parts:
        members: dict[str, Member] = {}
        parts.callback(_end, members)
        for spec in specs:
            own = directory / spec.name
            own.mkdir()
            members[spec.name] = Member(spec, own, library)
        for member in members.values():
            member.wait("ready", _START_SECONDS)
        yield Fleet(members)


def _end(members: Mapping[str, Member]) -> None:
    for member in members.values():
        member.end()
    until = time.monotonic() + _END_SECONDS
    for member in members.values():
        member.ended(max(until - time.monotonic(), 0))
