"""grafana/pictures draws small boards against a real Prometheus, and says what is wrong with them."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.stack import free_port, prometheus
from grafana.png import colors
from host import PICTURES
from requires import needs

pytestmark = needs("pictures", "prometheus")

START = 1_700_000_100
"""Where the samples begin; on a whole step of a minute."""

HOUR = 3600
STEP = 15

MAGENTA = (255, 0, 255)
CYAN = (0, 255, 255)
LIME = (0, 255, 0)
"""Colours that a board can name, and that Grafana itself has no use for."""


class Drawn(NamedTuple):
    status: int
    reports: Sequence[Mapping[str, Any]]
    said: str


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that knows an hour of two nodes, the second of which is in danger for the last quarter of it."""
    directory = tmp_path_factory.mktemp("prometheus")
    samples = directory / "samples.om"
    samples.write_text(exposition())
    promtool = shutil.which("promtool")
    assert promtool
    blocks = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(samples), str(directory / "prometheus")]
    subprocess.run(blocks, check=True, capture_output=True, timeout=60)
    with prometheus(directory, "global: {}\n") as address:
        yield address


def exposition() -> str:
    times = range(START, START + HOUR + 1, STEP)
    families: dict[str, tuple[str, Callable[[str, int], int]]] = {
        "lab_used_bytes": ("gauge", lambda node, at: 2**30 * (10 if node == "a" else 20)),
        "lab_danger": ("gauge", lambda node, at: int(node == "b" and at >= START + 2700)),
        "lab_requests_total": ("counter", lambda node, at: 2 * (at - START)),
    }
    lines = []
    for name, (kind, value) in families.items():
        lines.append(f"# TYPE {name.removesuffix('_total')} {kind}")
        lines += [f'{name}{{node="{node}"}} {value(node, at)} {at}' for node in "ab" for at in times]
    lines.append("# TYPE lab_wait_seconds histogram")
    for bound, count in (("0.1", 1), ("1", 3), ("+Inf", 4)):
        lines += [f'lab_wait_seconds_bucket{{le="{bound}"}} {count * (at - START)} {at}' for at in times]
    return "\n".join([*lines, "# EOF", ""])


def panel(kind: str, title: str, place: tuple[int, int, int, int], expr: str = "", **more: Any) -> dict[str, Any]:
    """place: x, y, width and height on the grid. more: further keys of the panel; those of a target in `target`."""
    target = {"refId": "A", "expr": expr, **more.pop("target", {})}
    targets = [target] if expr else []
    return {"type": kind, "title": title, "gridPos": dict(zip("xywh", place, strict=True)), "targets": targets, **more}


def fixed(color: str, **defaults: Any) -> dict[str, Any]:
    return {"defaults": {"color": {"mode": "fixed", "fixedColor": color}, **defaults}, "overrides": []}


def board(*panels: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"title": "Lab", "panels": list(panels), **more}


def draw(directory: Path, url: str, boards: Mapping[str, Mapping[str, Any]], *options: str, **shot: Any) -> Drawn:
    """Draws each board into its own picture, directory/NAME.png, with one browser."""
    batch = [{"dashboard": f"{directory}/{name}.json", "out": f"{directory}/{name}.png", **shot} for name in boards]
    for name, one in boards.items():
        (directory / f"{name}.json").write_text(json.dumps(one))
    (directory / "batch.json").write_text(json.dumps(batch))
    times = "--from", f"{START}000", "--to", f"{START + HOUR}000"
    return shoot("--batch", str(directory / "batch.json"), "--prometheus", url, *times, *options)


def shoot(*arguments: str) -> Drawn:
    argv = ["node", str(PICTURES / "shot.mjs"), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return Drawn(done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr)


def test_a_board_of_every_kind_of_panel(url: str, tmp_path: Path) -> None:
    kinds = board(
        panel(
            "timeseries",
            "Graph",
            (0, 0, 12, 6),
            "lab_used_bytes",
            target={"legendFormat": "{{node}}"},
            fieldConfig=fixed("#ff00ff", unit="bytes", min=0, custom={"lineWidth": 4}),
        ),
        panel(
            "stat",
            "Stat",
            (12, 0, 6, 6),
            "sum(lab_used_bytes)",
            fieldConfig=fixed("#00ff00"),
            options={"colorMode": "value"},
        ),
        panel("gauge", "Gauge", (18, 0, 6, 6), "max(lab_used_bytes)"),
        panel("bargauge", "Bars", (0, 6, 6, 6), "lab_used_bytes"),
        panel("table", "Table", (6, 6, 6, 6), "lab_used_bytes", target={"format": "table", "instant": True}),
        panel("state-timeline", "States", (12, 6, 6, 6), "lab_danger"),
        panel(
            "heatmap",
            "Heat",
            (18, 6, 6, 6),
            "sum by (le) (rate(lab_wait_seconds_bucket[5m]))",
            target={"format": "heatmap", "legendFormat": "{{le}}"},
        ),
        panel("text", "Words", (0, 12, 24, 3), options={"mode": "markdown", "content": "Some **words**."}),
        annotations={"list": [{"name": "Danger", "enable": True, "iconColor": "#00ffff", "expr": "lab_danger == 1"}]},
    )
    drawn = draw(tmp_path, url, {"kinds": kinds}, width=1000)
    report = drawn.reports[0]
    assert (drawn.status, drawn.said) == (0, "")
    assert report["panels"] == ["Graph", "Stat", "Gauge", "Bars", "Table", "States", "Heat", "Words"]
    found = {kind: report[kind] for kind in report if kind.endswith("Errors") or kind in ("noData", "blankPanels")}
    assert found == {"queryErrors": [], "panelErrors": [], "pageErrors": [], "noData": [], "blankPanels": []}
    # Fifteen rows of 30 pixels, and 8 between two of them, below the header.
    assert 15 * 38 < report["height"] < 15 * 38 + 150
    width, height, counts = colors(tmp_path / "kinds.png")
    assert (width, height) == (1000, report["height"])
    # Two lines across a graph, 4 pixels thick; the dashed lines of a region, in each of three panels; a number.
    assert counts[MAGENTA] > 2 * 300 * 3
    assert counts[CYAN] > 3 * 100
    assert counts[LIME] > 50
    assert len(counts) > 200


def test_what_is_wrong_with_a_board_is_said_by_title(url: str, tmp_path: Path) -> None:
    wrong = board(
        panel("timeseries", "Renamed", (0, 0, 8, 5), "lab_used_bytes_total"),
        panel(
            "stat",
            "Silent",
            (8, 0, 8, 5),
            "lab_crashes_total",
            fieldConfig={"defaults": {"noValue": "none"}, "overrides": []},
        ),
        panel("timeseries", "Broken", (16, 0, 8, 5), "rate(lab_used_bytes)"),
        panel("piechart", "Unknown", (0, 5, 12, 5), "lab_used_bytes"),
        panel("stat", "Under", (11, 6, 12, 5), "lab_used_bytes"),
        panel("stat", "Wide", (20, 12, 6, 5), "lab_used_bytes"),
    )
    drawn = draw(tmp_path, url, {"wrong": wrong})
    report = drawn.reports[0]
    assert drawn.status == 1
    assert report["noData"] == ["Renamed", "Broken"]
    assert report["noValue"] == ["Silent"]
    assert sorted(query["asker"] for query in report["emptyQueries"]) == ["Renamed", "Silent"]
    assert [(query["asker"], query["expression"]) for query in report["queryErrors"]] == [
        ("Broken", "rate(lab_used_bytes)")
    ]
    assert "parse error" in report["queryErrors"][0]["error"]
    assert report["panelErrors"] == [{"panel": "Unknown", "error": "Panel plugin not found: piechart"}]
    assert report["overlaps"] == ["Wide leaves the grid", "Unknown overlaps Under"]


def test_a_batch_is_drawn_in_order_and_fails_if_one_picture_does(url: str, tmp_path: Path) -> None:
    good = board(panel("stat", "Good", (0, 0, 24, 4), "sum(lab_used_bytes)"))
    bad = board(panel("stat", "Bad", (0, 0, 24, 4), "sum("))
    drawn = draw(tmp_path, url, {"one": good, "two": bad, "three": good}, "--width", "600", "--theme", "light")
    assert drawn.status == 1
    assert [Path(report["out"]).stem for report in drawn.reports] == ["one", "two", "three"]
    assert [len(report["queryErrors"]) for report in drawn.reports] == [0, 1, 0]
    width, _, counts = colors(tmp_path / "three.png")
    [(background, _)] = counts.most_common(1)
    assert width == 600
    assert min(background) > 240


NODE = {
    "type": "query",
    "name": "node",
    "query": {"query": "label_values(lab_used_bytes, node)", "refId": "node"},
    "multi": True,
    "includeAll": True,
    "allValue": ".+",
    "current": {"text": "All", "value": "$__all"},
    "refresh": 2,
}


@pytest.mark.parametrize(
    ("options", "expected", "panels"),
    [
        ([], 'lab_used_bytes{node=~".+"}', ["Of a", "Of b", "All"]),
        (["--var", "node=b"], 'lab_used_bytes{node=~"b"}', ["Of b", "All"]),
        (["--var", "node=a", "--var", "node=b"], 'lab_used_bytes{node=~"(a|b)"}', ["Of a", "Of b", "All"]),
    ],
)
def test_variables_choose_what_is_asked_and_repeated(
    url: str, tmp_path: Path, options: list[str], expected: str, panels: list[str]
) -> None:
    repeated = panel("stat", "Of $node", (0, 0, 24, 4), 'lab_used_bytes{node="$node"}', repeat="node", maxPerRow=1)
    every = panel("stat", "All", (0, 4, 24, 4), 'lab_used_bytes{node=~"$node"}')
    drawn = draw(tmp_path, url, {"board": board(repeated, every, templating={"list": [NODE]})}, *options)
    report = drawn.reports[0]
    assert drawn.status == 0
    assert report["panels"] == panels
    asked = {query["asker"]: query["expression"] for query in report["queries"]}
    assert asked["All"] == expected
    assert asked["Of b"] == 'lab_used_bytes{node="b"}'
    assert asked["variable node"] == "label_values(lab_used_bytes, node)"
    # Each copy takes a row of its own, and moves down what is below it.
    assert report["height"] > len(panels) * 4 * 38


def test_times_in_queries_are_those_that_grafana_would_ask(url: str, tmp_path: Path) -> None:
    rate = "rate(lab_requests_total[$__rate_interval])"
    times = board(
        panel("timeseries", "Short steps", (0, 0, 8, 4), rate, maxDataPoints=10_000),
        panel("timeseries", "Long steps", (8, 0, 8, 4), rate, maxDataPoints=60),
        panel("stat", "Range", (16, 0, 8, 4), "max_over_time(lab_danger[$__range])", target={"instant": True}),
    )
    asked = {query["asker"]: query["expression"] for query in draw(tmp_path, url, {"b": times}).reports[0]["queries"]}
    assert asked == {
        "Short steps": "rate(lab_requests_total[60s])",  # four scrapes of 15 s
        "Long steps": "rate(lab_requests_total[75s])",  # a step of a minute and one scrape
        "Range": "max_over_time(lab_danger[3600s])",
    }


def test_a_collapsed_row_asks_nothing_unless_it_is_drawn_open(url: str, tmp_path: Path) -> None:
    row = {
        "type": "row",
        "title": "More",
        "collapsed": True,
        "gridPos": {"x": 0, "y": 4, "w": 24, "h": 1},
        "panels": [panel("stat", "Inside", (0, 5, 24, 4), "lab_danger")],
    }
    boards = {"b": board(panel("stat", "Above", (0, 0, 24, 4), "lab_danger"), row)}
    closed = draw(tmp_path, url, boards).reports[0]
    opened = draw(tmp_path, url, boards, "--expand").reports[0]
    assert closed["panels"] == ["Above"]
    assert opened["panels"] == ["Above", "Inside"]
    assert opened["height"] - closed["height"] == 4 * 38


def test_a_prometheus_that_does_not_answer_is_an_error_of_each_query(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    drawn = draw(tmp_path, nowhere, {"b": board(panel("stat", "Lost", (0, 0, 24, 4), "lab_danger"))})
    assert drawn.status == 1
    [failed] = drawn.reports[0]["queryErrors"]
    assert failed["asker"] == "Lost"
    assert f"no answer from {nowhere}: connect ECONNREFUSED" in failed["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dashboard", "none.json", "--out", "x.png", "--prometheus", "http://127.0.0.1:9"], "none.json: ENOENT"),
        (["--dashboard", "none.json"], "--out is missing"),
        (
            ["--theme", "blue", "--dashboard", "a", "--out", "b", "--prometheus", "c"],
            "--theme is dark or light, not blue",
        ),
        (["--width", "wide", "--dashboard", "a", "--out", "b", "--prometheus", "c"], "--width is a positive number"),
        (["--var", "node", "--dashboard", "a", "--out", "b", "--prometheus", "c"], "--var takes NAME=VALUE, not node"),
        (["--batch", "none.json"], "none.json: ENOENT"),
        (["--hight", "3"], "Unknown option '--hight'"),
    ],
)
def test_arguments_that_make_no_sense_are_told(arguments: list[str], said: str) -> None:
    drawn = shoot(*arguments)
    assert drawn.status == 2
    assert drawn.reports == []
    assert said in drawn.said
