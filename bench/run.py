"""Benchmarks of the daemon beside a floor or a peer: `bench/run.py [NAME..]`, all of them without a name.

Everything is CPU time of a process or a ratio within one run, since machines are shared and their speed differs.
Takes root, for cgroups of its own. What is left out, or cannot be had here, is printed as such.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType

import cgroup_pass
import churn
import engines
import exposition_text
import machine
import requests
import resident
import scrape
import startup
from oomcast.contract import NotPresent
from owned import Unusable
from peers import Missing


def main() -> int:
    arguments = _arguments()
    names = arguments.name or list(_benchmarks(arguments))
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ["PYTHONUNBUFFERED"] = "1"
    print(f"# oomcast benchmarks\n\n{machine.describe()}", flush=True)
    failed = False
    for name in names:
        try:
            _benchmarks(arguments)[name]()
        except (Missing, NotPresent, Unusable) as reason:
            print(f"\n{name}: not measured: {reason}", flush=True)
            failed = True
        except KeyboardInterrupt:
            print("\ninterrupted; the cgroups are removed", file=sys.stderr)
            return 130
    return int(failed)


def _benchmarks(arguments: argparse.Namespace) -> Mapping[str, Callable[[], None]]:
    return {
        "cgroups": lambda: cgroup_pass.run(arguments.repeats),
        "scrape": lambda: scrape.run(arguments.repeats),
        "exposition_text": lambda: exposition_text.run(arguments.repeats),
        "start": lambda: startup.run(max(arguments.repeats // 3, 3)),
        "resident": lambda: resident.run(arguments.minute),
        "gpu": lambda: _gpu(arguments.minute),
        "engines": lambda: engines.run(arguments.minute),
        "requests": requests.run,
        "ebpf": lambda: _ebpf(arguments.minute),
        "churn": lambda: churn.run(arguments.seconds),
    }


def _gpu(minute: float) -> None:
    sys.path.append(str(machine.HERE.parent / "tests"))  # the scripted driver is one of theirs
    import gpu

    gpu.run(minute)


def _ebpf(minute: float) -> None:
    sys.path.append(str(machine.HERE.parent / "tests"))  # what is traced are their programs
    import ebpf

    ebpf.run(minute)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = list(_benchmarks(argparse.Namespace()))
    parser.add_argument("name", nargs="*", help=f"which of {', '.join(known)}; all of them without")
    parser.add_argument("--repeats", type=int, default=30, help="repeats of the first three (default 30)")
    parser.add_argument(
        "--minute", type=float, default=60, help="seconds that resident, gpu, engines, ebpf watch (default 60)"
    )
    parser.add_argument("--seconds", type=float, default=600, help="seconds of churn (default 600)")
    arguments = parser.parse_args()
    unknown = set(arguments.name) - set(known)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    return arguments


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
