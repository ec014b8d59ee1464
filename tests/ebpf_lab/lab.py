"""Programs that a tracer is tested on: compiled once per run, and steered in phases.

    with Target(build("leak")) as target:
        attach(target.pid)             # it waits, and has done nothing yet
        said = target.step()           # {"phase": "malloc", "allocs": 102, "bytes": 1063526, ...}

A program says exactly what it did, so that a test compares with that and not with numbers of its own. src/README.md
lists the programs, their arguments and phases.
"""

import atexit
import functools
import json
import os
import resource
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ebpf_lab.recipes import RECIPES
from host import rustc

SOURCES = Path(__file__).parent / "src"
PATIENCE = 30.0
"""Seconds that a phase may take unless a test says otherwise."""


class BuildError(Exception):
    """A program does not compile here; says what the compiler said."""


class TargetError(Exception):
    """A target said nothing in time, nothing that can be read, or is gone."""


@functools.cache
def build(name: str) -> Path:
    """The program or library `name` of RECIPES; compiled, in a second at most, when first asked for.

    All lie in one folder, which goes when the run ends. Raises KeyError on an unknown name, BuildError.
    """
    recipe = RECIPES[name]
    for other in recipe.beside:
        build(other)
    path = _folder() / name
    sources = [str(SOURCES / source) for source in recipe.sources]
    command = _rustc(path) if sources[0].endswith(".rs") else _cc(path)
    done = subprocess.run(
        [*command, *sources, *recipe.flags],
        # Takes the unstable option; changes nothing else.
        env=os.environ | {"RUSTC_BOOTSTRAP": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise BuildError(f"{name}: {done.stderr.strip()}")
    return path


def _cc(path: Path) -> list[str]:
    # A builtin may be optimized away: no call, nothing to trace.
    warnings = ["-Wall", "-Wextra"]
    return ["cc", "-std=gnu11", "-O1", "-g", "-fno-builtin", "-pthread", *warnings, f"-L{path.parent}", "-o", str(path)]


def _rustc(path: Path) -> list[str]:
    compiler = rustc()
    if compiler is None:
        raise BuildError(f"{path.name}: there is no rustc")
    return [compiler, "--edition", "2021", "-O", "-g", "-o", str(path)]


@functools.cache
def _folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="oomcast-ebpf-lab-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Target:
    """A running program of the lab, at first waiting before its first phase. Also a context manager that stops it.

    ready: what it said of itself; pid: its own, and that of the process started.
    Everything that waits raises TargetError after `patience` seconds, with what the program wrote to stderr.
    """

    def __init__(
        self, *command: str | Path, environ: Mapping[str, str] | None = None, patience: float = PATIENCE
    ) -> None:
        self._patience = patience
        self._said = b""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - stop closes it
        self._process = subprocess.Popen(
            [str(part) for part in command],
            env=os.environ | {"RUST_BACKTRACE": "0"} | dict(environ or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        try:
            self.ready = self._read()
            self.pid = int(self.ready["pid"])
            # Many are there to crash: no core files of theirs.
            resource.prlimit(self._process.pid, resource.RLIMIT_CORE, (0, 0))
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def step(self) -> dict[str, Any]:
        """Runs one phase. Returns what the program then says, the name as "phase"; it waits again."""
        self.go()
        return self._read()

    def go(self) -> None:
        """The same without waiting: for what is to happen meanwhile, or a phase that ends the program."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._failure("is gone") from error

    def said(self) -> dict[str, Any]:
        """Waits for what the program says next, after `go`."""
        return self._read()

    def wait(self) -> int:
        """Waits for the end. Returns the exit status, negative: the signal."""
        try:
            return self._process.wait(self._patience)
        except subprocess.TimeoutExpired as error:
            raise self._failure(f"runs after {self._patience:g} s") from error

    def errors(self) -> str:
        """What it wrote to stderr so far."""
        size = self._stderr.seek(0, os.SEEK_END)
        return os.pread(self._stderr.fileno(), size, 0).decode(errors="replace")

    def stop(self) -> None:
        """Ends it if it still runs. May be called again."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._stderr.close()

    def _read(self) -> dict[str, Any]:
        line = self._line()
        try:
            said = json.loads(line)
        except ValueError as error:
            raise self._failure(f"said {line!r}") from error
        assert isinstance(said, dict)
        return said

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        pipe, deadline = self._process.stdout.fileno(), time.monotonic() + self._patience
        while b"\n" not in self._said:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise self._failure(f"said nothing for {self._patience:g} s")
            read = os.read(pipe, 1 << 16)
            if not read:
                raise self._failure("is gone")
            self._said += read
        line, _, self._said = self._said.partition(b"\n")
        return line

    def _failure(self, what: str) -> TargetError:
        return TargetError(f"{self._process.args!r} {what}: {self.errors()[-500:]}")
