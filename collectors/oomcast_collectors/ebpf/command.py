"""`oomcast stacks`: which stacks of a process take memory that they do not give back."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from oomcast.clock import SystemClock
from oomcast.contract import CollectorSettings
from oomcast_collectors.ebpf.machine import missing
from oomcast_collectors.ebpf.privileges import lacking_for_programs
from oomcast_collectors.ebpf.question import ask
from oomcast_collectors.ebpf.settings import SHIPPED_PAIRS, EbpfSettings, Pair
from oomcast_collectors.ebpf.wire import Absent, Failed, Log, Order, Stack, Wanted

_START = 60.0
"""Seconds that the compiler may take at most, on a slow machine."""

_MOST_SECONDS = 3600.0
_FAILED, _WRONG = 1, 2


def define(command: argparse.ArgumentParser) -> None:
    """Gives the command its options."""
    command.epilog = (
        "Following libc costs the process 2 to 8 us per call. Exit codes: 0 told, 1 not to be had, 2 wrong usage."
    )
    command.add_argument("--pid", type=int, required=True, metavar="PID", help="the process")
    command.add_argument(
        "--seconds", type=_seconds, default=10.0, metavar="SECONDS", help="how long it is followed (default 10)"
    )
    kinds = f"libc, mmap, brk, {', '.join(SHIPPED_PAIRS)}, or a pair of the settings (default libc)"
    command.add_argument("--kind", default="libc", metavar="KIND", help=kinds)
    command.add_argument("--top", type=int, default=5, metavar="N", help="stacks at most (default 5)")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=run)


def run(arguments: argparse.Namespace, configured: CollectorSettings) -> int:
    """Prints the stacks; the exit code."""
    assert isinstance(configured, EbpfSettings)
    if not Path(f"/proc/{arguments.pid}").is_dir():
        return _complain(f"there is no process {arguments.pid}", _WRONG)
    settings = _settings(arguments.kind, configured.allocations.pairs)
    if settings is None:
        return _complain(f"{arguments.kind} is neither libc, mmap, brk nor a pair that is known", _WRONG)
    if reason := missing() or lacking_for_programs():
        return _complain(reason, _FAILED)
    wanted = Wanted(arguments.pid, arguments.kind, arguments.seconds, arguments.top)
    stacks: list[Stack] = []
    for message in ask(Order(settings.model_dump(mode="json"), stacks=wanted), SystemClock(), _START):
        match message:
            case Stack():
                stacks.append(message)
            case Absent(reason) | Failed(reason):
                return _complain(reason, _FAILED)
            case Log(_, text):
                sys.stderr.write(f"oomcast: {text}\n")
    sys.stdout.write(_json(stacks) if arguments.json else _text(stacks, arguments))
    return 0


def _settings(kind: str, pairs: Sequence[Pair | str]) -> EbpfSettings | None:
    allocations: dict[str, object] = {"budget": 100.0, "leak_bytes": 1 << 62}
    own = [pair for pair in pairs if isinstance(pair, Pair) and pair.kind == kind]
    if kind == "libc":
        allocations["libc"] = "full"
    elif own:
        allocations["pairs"] = [pair.model_dump() for pair in own]
    elif kind in SHIPPED_PAIRS:
        allocations["pairs"] = [kind]
    elif kind not in ("brk", "mmap"):
        return None
    told = {"probes": ["allocations"], "targets": {"engines": False}, "allocations": allocations}
    return EbpfSettings.model_validate(told)


def _text(stacks: Sequence[Stack], arguments: argparse.Namespace) -> str:
    if not stacks:
        return f"process {arguments.pid} kept nothing of {arguments.kind} of these {arguments.seconds:g} s\n"
    lines = []
    for stack in stacks:
        lines.append(f"{stack.bytes} bytes in {stack.blocks} block{'' if stack.blocks == 1 else 's'}")
        lines += [f"    {frame}" for frame in stack.frames or ("[no stack]",)]
    return "\n".join(lines) + "\n"


def _json(stacks: Sequence[Stack]) -> str:
    told = [{"bytes": one.bytes, "blocks": one.blocks, "frames": list(one.frames)} for one in stacks]
    return json.dumps(told, indent=2) + "\n"


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"oomcast: {text}\n")
    return code


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"should be above 0 and at most {_MOST_SECONDS:g} seconds")
    return seconds
