"""What a sample takes on disk: two hours of played nodes, scraped every 15 s, made into one block by promtool."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fleet_pages import Player, Script
from fleet_prometheus import Programs

HOURS = 2
"""What Prometheus keeps in its head, and then writes into a block."""

_EVERY = 15
_BEGAN = 1_800_000_000 // 7200 * 7200
_TIMEOUT = 1200


class Block(NamedTuple):
    """Bytes of the files. changing: the share of series that change from one scrape to the next."""

    changing: float
    samples: int
    series: int
    chunk_bytes: int
    index_bytes: int


def block(script: Script, nodes: int, programs: Programs) -> Block:
    """Of so many nodes."""
    with tempfile.TemporaryDirectory(prefix="oomcast-bench-") as directory:
        text, data = Path(directory, "history.txt"), Path(directory, "data")
        with text.open("w") as file:
            for number in range(nodes):
                file.writelines(_lines(script, number))
            file.write("# EOF\n")
        command: list[str | Path] = [programs.promtool, "tsdb", "create-blocks-from", "openmetrics", text, data]
        subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT)
        (meta,) = data.glob("*/meta.json")
        stats = json.loads(meta.read_text())["stats"]
        chunks = sum(file.stat().st_size for file in (meta.parent / "chunks").iterdir())
        return Block(
            script.changing, stats["numSamples"], stats["numSeries"], chunks, (meta.parent / "index").stat().st_size
        )


def _lines(script: Script, number: int) -> Sequence[str]:
    player = Player(script, number)
    own = f'cluster="inference",instance="gpu-{number}:19128",job="oomcast",node="gpu-{number}"'
    made = []
    names: list[str] = []
    for i in range(HOURS * 3600 // _EVERY):
        at = _BEGAN + i * _EVERY
        player.page(at)
        values = player.values()
        if not names:
            names = [_with(series, own) for series in values]
        made += [f"{name} {value.decode()} {at}\n" for name, value in zip(names, values.values(), strict=True)]
    return made


def _with(series: str, labels: str) -> str:
    name, _, own = series.rstrip("}").partition("{")
    return f"{name}{{{','.join(filter(None, [own, labels]))}}}"
