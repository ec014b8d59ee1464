"""make demo: an engine dies of long prompts within a minute, and oomcast says so before."""

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from collectors.gpu.driver import FakeDriver, build
from incident.memory import Gpu
from incident.node import BLOCKS, MODEL, Node
from incident.play import Play
from incident.programs import Failed, daemon, prometheus
from oomcast.client import Client

EXIT_FINE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130

ENGINE = "demo"
_HIT_WINDOW = 10.0
"""Seconds, the least that can be set: the cache's hits follow the story instead of its last five minutes."""

_OBJECTIVES = {65_536: 30.0, 131_072: 180.0, 200_000: 300.0}
"""Virtual seconds for a whole answer, by the longest prompt in tokens."""


def main() -> int:
    arguments = _arguments()
    # Interrupts too: a shell has what it starts in the background ignore them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with ExitStack() as parts:
            return _play(arguments, parts)
    except KeyboardInterrupt:
        _say("\ninterrupted")
        return EXIT_INTERRUPTED
    except (Failed, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"demo: {error}\n")
        return EXIT_FAILED


def _play(arguments: argparse.Namespace, parts: ExitStack) -> int:
    if shutil.which("cc") is None:
        raise Failed("there is no C compiler (cc), which the GPU driver's stand-in is built with")
    directory = Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="oomcast-demo-")))
    driver = FakeDriver(directory, build(directory))
    client = Client(directory / "requests", ENGINE)
    parts.callback(client.close)
    node = Node(Gpu(driver, BLOCKS), client, arguments.speed)
    parts.callback(node.stop)
    node.serve()
    settings = _settings(node.url, directory / "requests", arguments.load_grace)
    url = parts.enter_context(daemon(directory, settings, driver.environment))
    has_prometheus = not arguments.no_prometheus and shutil.which("prometheus") is not None
    server = parts.enter_context(prometheus(directory, url, arguments.speed)) if has_prometheus else ""
    _say(f"oomcast    {url}   its metrics: {url}/metrics")
    _say(f"prometheus {server or 'not running: ' + _why(arguments)}")
    _say(f"engine     {node.url}   {MODEL} on an 80 GB GPU, simulated, at {arguments.speed:g} times its speed")
    _say("Every number below is what oomcast says; behind it the name of the metric.")
    _say(f"Cache hits are those of the last {_HIT_WINDOW:.0f} s here, by default they are those of five minutes.\n")
    play = Play(node, url, server, arguments.speed)
    for line in play.run():
        _say(line)
    _say("\nNext: the alert's runbook in alerts/runbooks, docs/engines.md for the numbers, README.md for a real node.")
    if arguments.keep:
        _say(f"\nIt all stays until Ctrl-C: look around at {server or url}")
        signal.pause()
    return EXIT_FAILED if play.missing else EXIT_FINE


def _settings(engine: str, socket: Path, load_grace: float) -> dict[str, object]:
    classes: list[dict[str, object]] = [{"up_to": end, "e2e": seconds} for end, seconds in _OBJECTIVES.items()]
    endpoint = {"url": engine, "name": ENGINE}
    # host: the memory of this machine is no part of the play.
    off = {name: {"enabled": False} for name in ("cgroup", "ebpf", "kernel_log", "engine_log", "host")}
    own = {
        "gpu": {"load_grace": load_grace},
        "engine": {"endpoints": [endpoint], "period": 0.5, "interval": 0.5, "hit_window": _HIT_WINDOW},
        "requests": {"socket": str(socket), "interval": 0.5},
    }
    return {"slo": {"classes": [*classes, {}]}, "collectors": {**off, **own}}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--speed", type=_speed, default=9.0, help="virtual seconds of the engine in a second (9)")
    parser.add_argument("--keep", action="store_true", help="stay after the crash, until Ctrl-C")
    parser.add_argument("--no-prometheus", action="store_true", help="run without Prometheus, even if it is installed")
    parser.add_argument(
        "--load-grace", type=float, default=0.0, help="gpu.load_grace of the daemon; with 3600 there is no forecast (0)"
    )
    return parser.parse_args()


def _speed(text: str) -> float:
    speed = float(text)
    if not 1 <= speed <= 20:
        raise argparse.ArgumentTypeError("should be from 1 to 20")
    return speed


def _why(arguments: argparse.Namespace) -> str:
    return "--no-prometheus" if arguments.no_prometheus else "it is not installed, so no alerts are shown"


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
