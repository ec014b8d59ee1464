"""Writes alerts/, grafana/dashboards, copies of both for the Helm chart, and the tables of docs/alerts.md; --check says
what is stale, and ends with 1.

make generate runs it: it needs grafana/ on the path.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from boards.files import files as boards
from oomcast.rules import render
from oomcast.rules.config import Config
from oomcast.rules.groups import groups

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "oomcast" / "files"
"""A chart cannot read outside of its own folder."""

_BEGIN, _END = "<!-- begin: oomcast rules --format markdown -->\n", "<!-- end -->\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = [path for path, text in files() if not path.exists() or path.read_text() != text]
    for path, text in files():
        if path in stale and not check:
            path.write_text(text)
        if path in stale:
            sys.stdout.write(f"{path.relative_to(ROOT)}: {'not up to date' if check else 'written'}\n")
    return int(check and bool(stale))


def files() -> Iterator[tuple[Path, str]]:
    """Each generated file and what it should hold."""
    config = Config()
    every = groups(config)
    rules = render.prometheus(every, config)
    yield ROOT / "alerts" / "oomcast.rules.yml", rules
    yield CHART / "oomcast.rules.yml", rules
    yield ROOT / "alerts" / "prometheusrule.yaml", render.operator(every, config)
    for path, text in boards(config):
        yield path, text
        yield CHART / "dashboards" / path.name, text
    document = ROOT / "docs" / "alerts.md"
    before, _, rest = document.read_text().partition(_BEGIN)
    yield document, before + _BEGIN + render.markdown(every) + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    sys.exit(main())
