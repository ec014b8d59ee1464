"""`oomcast rules`: prints the alert rules for a user's own thresholds and selectors."""

import argparse
import json
import re
import sys

from oomcast.rules import render
from oomcast.rules.config import JOB, RUNBOOKS, Config
from oomcast.rules.groups import groups
from oomcast.rules.thresholds import THRESHOLDS, Limits

_EXIT_USAGE = 2
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def define(command: argparse.ArgumentParser) -> None:
    command.description = "Prints alert and recording rules. Without options they are those of alerts/."
    formats = ("prometheus", "prometheusrule", "markdown", "thresholds")
    command.add_argument(
        "--format", choices=formats, default=formats[0],
        help="a rule file, a resource of the Prometheus operator, tables of the alerts and thresholds, or the"
        " thresholds as JSON",
    )  # fmt: skip
    command.add_argument(
        "--set", dest="own", type=_pair, action="append", default=[], metavar="NAME=VALUE",
        help="another value for a threshold, in the unit of the table or as 1h30m; may be given several times",
    )  # fmt: skip
    command.add_argument("--job", default=JOB, metavar="REGEX", help=f"what oomcast's jobs are called (default {JOB})")
    command.add_argument("--match", default="", metavar="MATCHERS", help="matchers for every selector: 'env=\"prod\"'")
    command.add_argument(
        "--node-labels", default="cluster,node", metavar="LABELS",
        help="target labels that name a node, itself last (default cluster,node)",
    )  # fmt: skip
    command.add_argument("--runbooks", default=RUNBOOKS, metavar="URL", help="where runbooks are, with {alert} in it")
    command.add_argument("--grafana", default="", metavar="URL", help="where Grafana is; without it links are relative")
    command.add_argument(
        "--scale", type=float, default=1.0, metavar="FACTOR",
        help="divide every duration by it, to play an incident in less time than it takes",
    )  # fmt: skip
    command.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        config = Config(
            Limits(dict(arguments.own), arguments.scale),
            arguments.job,
            arguments.match,
            tuple(arguments.node_labels.split(",")),
            arguments.runbooks,
            arguments.grafana.rstrip("/"),
        )
    except ValueError as error:
        sys.stderr.write(f"oomcast rules: {error}\n")
        return _EXIT_USAGE
    every = groups(config)
    if arguments.format == "prometheus":
        text = render.prometheus(every, config)
    elif arguments.format == "prometheusrule":
        text = render.operator(every, config)
    elif arguments.format == "markdown":
        text = render.markdown(every)
    else:
        rows = [
            {"name": t.name, "value": config.limits[t.name], "unit": t.unit, "why": t.why, "source": t.source}
            for t in THRESHOLDS
        ]
        text = json.dumps(rows, indent=1) + "\n"
    sys.stdout.buffer.write(text.encode())
    return 0


def _pair(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        parts = re.findall(r"(\d+)(d|h|m|s)", value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            raise argparse.ArgumentTypeError(f"{text!r} should be NAME=NUMBER") from None
    return name, float(sum(int(number) * _SECONDS[unit] for number, unit in parts))
