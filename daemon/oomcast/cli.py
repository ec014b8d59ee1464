"""The command line. Exit codes: 0 done; 1 could not start or run; 2 wrong usage or settings; 3 a collector failed.

`context` answers by its own, beside these: context/command.py.
"""

import argparse
import asyncio
import contextlib
import gc
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from oomcast import __version__, report, table
from oomcast.clock import SystemClock
from oomcast.contract import CollectorSpec, Context
from oomcast.core import CORE_METRICS, Core
from oomcast.daemon import Daemon
from oomcast.ending import leave
from oomcast.example import example
from oomcast.logs import configure
from oomcast.notify import Notifier
from oomcast.plugins import Found, SpecError, find
from oomcast.settings import Settings, SettingsError, load

EXIT_FAILED, EXIT_USAGE, EXIT_COLLECTOR = 1, 2, 3
_MOST_SECONDS = 86_400.0
_END = 2.0
_OBJECTS_PER_COLLECTION = 50_000
_PATIENCE = 1.0
"""Seconds beyond the slowest collector's timeout that `run --once` and `check` wait for first runs."""


def run(argv: Sequence[str]) -> None:
    """Runs one command; never returns: threads that hang in a driver must not keep the process."""
    _open_streams()
    configure("info", "logfmt", sys.stderr)
    try:
        arguments = _parser(argv).parse_args(argv)
        code = int(arguments.command(arguments))
        sys.stdout.flush()
    except SystemExit as done:  # argparse: help, version, wrong usage
        code = done.code if isinstance(done.code, int) else EXIT_USAGE
    except SettingsError as error:
        print(error, file=sys.stderr)
        code = EXIT_USAGE
    except SpecError as error:
        print(f"oomcast: {error}", file=sys.stderr)
        code = EXIT_FAILED
    except BrokenPipeError:
        code = EXIT_FAILED
    except KeyboardInterrupt:
        code = 130
    except Exception:
        logging.getLogger("oomcast").exception("oomcast cannot go on")
        code = EXIT_FAILED
    leave(code)


def _open_streams() -> None:
    # Closed before we began: without this the next socket gets the number, and with it what others print.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oomcast",
        description="Sees the out-of-memory crash of an LLM inference node before it happens.",
        epilog="exit codes: 0 done, 1 could not start or run, 2 wrong usage or settings, 3 a collector failed",
    )
    parser.add_argument("--version", action="version", version=f"oomcast {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    settings = argparse.ArgumentParser(add_help=False)
    settings.add_argument(
        "--config", type=Path, metavar="FILE", help="settings file (default: $OOMCAST_CONFIG, or none)"
    )

    command = commands.add_parser("run", parents=[settings], help="serve metrics until told to stop")
    command.add_argument("--once", action="store_true", help="run every collector once, print the metrics, end")
    command.set_defaults(command=_run)
    command = commands.add_parser(
        "check", parents=[settings], help="check the settings, and say what each collector finds on this machine"
    )
    command.add_argument("--settings", action="store_true", help="check the settings alone, and read nothing else")
    command.set_defaults(command=_check)
    if argv[:1] == ["check"]:
        for spec in find(CORE_METRICS).specs:
            if spec.trial:
                help_text = f"also try everything that the {spec.name} collector may load or attach, on or off"
                command.add_argument(
                    f"--{spec.name}", dest="trials", action="append_const", const=spec, default=[], help=help_text
                )
    command = commands.add_parser("snapshot", parents=[settings], help="read every counter twice and print what rose")
    command.add_argument("--interval", type=_seconds, default=10.0, metavar="SECONDS", help="time between (default 10)")
    command.add_argument("--match", default="", metavar="TEXT", help="only series whose name or labels contain TEXT")
    command.add_argument("--all", action="store_true", help="also counters that did not rise")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_snapshot)
    command = commands.add_parser("metrics", help="print the table of all metrics")
    command.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    command.set_defaults(command=_metrics)
    command = commands.add_parser("example", help="print a settings file with every key, its default and meaning")
    command.set_defaults(command=_example)
    command = commands.add_parser("kv", help="say how much memory a model's KV cache takes, and what fits")
    if argv[:1] == ["kv"]:  # the daemon does without the package
        from oomcast.kv.command import define

        define(command)
    command = commands.add_parser("context", help="say whether an input fits an engine or a model, and what breaks")
    if argv[:1] == ["context"]:
        from oomcast.context.command import define as define_context

        define_context(command)
    command = commands.add_parser("rules", help="print the alert rules, with thresholds and selectors of your own")
    if argv[:1] == ["rules"]:
        from oomcast.rules.command import define as define_rules

        define_rules(command)
    command = commands.add_parser(
        "stacks", parents=[settings], help="say which stacks of a process take memory that they do not give back"
    )
    if argv[:1] == ["stacks"]:
        from oomcast_collectors.ebpf.command import define as define_stacks

        define_stacks(command)
        command.set_defaults(command=_stacks)
    return parser


def _stacks(arguments: argparse.Namespace) -> int:
    from oomcast_collectors.ebpf.command import run

    _, settings = _settings(arguments)
    return run(arguments, settings.collectors["ebpf"])


def _run(arguments: argparse.Namespace) -> int:
    found, settings = _settings(arguments)
    if arguments.once:
        from oomcast.families import text  # what the daemon itself does without, see Store.collect()

        with _once(found, settings) as core:
            _write(text(core.store))
            return EXIT_COLLECTOR if report.failed(core.station.runners) else 0
    source = str(arguments.config or os.environ.get("OOMCAST_CONFIG") or "defaults")
    logging.getLogger("oomcast").info("starting", extra={"version": __version__, "settings": source})
    clock = SystemClock()
    core = Core(found.specs, settings.paths.roots(), clock)

    def reload() -> Settings:
        return load(arguments.config, os.environ, found.specs, found.left_out)

    # What stands now stands to the end, so garbage need not be looked for in it; and a pass over thousands of cgroups
    # makes more objects than the interpreter waits for by default, without a cycle among them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    code = asyncio.run(Daemon(core, settings, reload, Notifier(os.environ), clock).run())
    if core.restart.due:
        core.restart.execute()
    return code


def _check(arguments: argparse.Namespace) -> int:
    found, settings = _settings(arguments)
    if arguments.settings:
        _write("settings: ok\n")
        return 0
    with _once(found, settings) as core:
        _write("\n".join(report.check(core, settings, found.specs)) + "\n")
        failed = report.failed(core.station.runners)
    for spec in arguments.trials:
        failed |= not _try(spec, settings)
    return EXIT_COLLECTOR if failed else 0


def _try(spec: CollectorSpec, settings: Settings) -> bool:
    """Prints what comes of it as it comes; whether all went well."""
    log = logging.getLogger(f"oomcast.{spec.name}")
    context = Context(
        settings.paths.roots(),
        SystemClock(),
        log,
        push=lambda facts: None,
        serving=settings.serving_processes,
        slo=settings.slo,
    )
    all_fine = True
    assert spec.trial is not None
    for fine, line in spec.trial(settings.collectors[spec.name], context):
        all_fine &= fine
        _write(f"{spec.name}  {'ok    ' if fine else 'FAILED'}  {line}\n")
    return all_fine


def _snapshot(arguments: argparse.Namespace) -> int:
    found, settings = _settings(arguments)
    with _once(found, report.with_all_counters(settings)) as core:
        before = report.counters(core)
        time.sleep(arguments.interval)
        core.again(_patience(settings))
        after = report.counters(core)
        show = report.as_json if arguments.json else report.as_text
        _write(show(report.difference(before, after, arguments.match, everything=arguments.all)) + "\n")
        return EXIT_COLLECTOR if report.failed(core.station.runners) else 0


def _metrics(arguments: argparse.Namespace) -> int:
    specs = find(CORE_METRICS).specs
    rows = [*(("oomcast", metric) for metric in CORE_METRICS), *table.rows(specs)]
    about = {"oomcast": "the daemon itself, the forecast, and kills counted once"} | {s.name: s.help for s in specs}
    _write(table.render(rows, arguments.format, about))
    return 0


def _example(_: argparse.Namespace) -> int:
    _write(example(find(CORE_METRICS).specs))
    return 0


def _settings(arguments: argparse.Namespace) -> tuple[Found, Settings]:
    found = find(CORE_METRICS)
    settings = load(arguments.config, os.environ, found.specs, found.left_out)
    configure(settings.log.level, settings.log.format, sys.stderr)
    return found, settings


@contextlib.contextmanager
def _once(found: Found, settings: Settings) -> Iterator[Core]:
    """A core whose collectors have all run once, or have been given up; what they started is stopped afterwards."""
    core = Core(found.specs, settings.paths.roots(), SystemClock())
    try:
        core.start(settings)
        core.rest(_patience(settings))
        yield core
    finally:
        core.stop(core.clock.monotonic() + _END)


def _patience(settings: Settings) -> float:
    return _PATIENCE + max((own.timeout for own in settings.collectors.values() if own.enabled), default=0)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"should be 0 to {_MOST_SECONDS:g} seconds")
    return seconds


def _write(text: str) -> None:
    # Bytes, since the locale's encoding may lack what a path holds.
    sys.stdout.buffer.write(text.encode())
