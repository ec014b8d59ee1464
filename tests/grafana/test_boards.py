"""The dashboards: that they are what the tables make, and keep to what is agreed of boards, panels and queries."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from boards.files import files
from grafana.promql import Labels, calls, metrics_in, parsed
from oomcast.core import CORE_METRICS
from oomcast.rules.config import Config
from oomcast.rules.groups import alerts, groups
from oomcast.rules.rule import Alert, Recording
from oomcast.rules.thresholds import Limits
from oomcast_collectors.all import ALL

FOLDER = Path(__file__).parents[2] / "grafana" / "dashboards"
UIDS = ("oomcast-fleet", "oomcast-node", "oomcast-long-context", "oomcast-forensics", "oomcast-itself")
GENERATED = {path.stem: text for path, text in files()}
BOARDS: dict[str, dict[str, Any]] = {uid: json.loads(GENERATED[uid]) for uid in UIDS}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
METRICS = {metric.name: metric for metric in [*CORE_METRICS, *(m for spec in ALL for m in spec.metrics)]}
RULES = [rule for group in groups(Config()) for rule in group.rules]
ALERTS = [rule for rule in alerts(groups(Config())) if rule.severity != "none"]
LABELS = Labels(METRICS.values(), [rule for rule in RULES if isinstance(rule, Recording)])

NOT_SHOWN = {
    "process_virtual_memory_bytes": "address space, of which nothing can be concluded",
    "oomcast_gpu_energy_joules_total": "the integral of the power that is shown",
    "oomcast_gpu_library_inits_total": "for the log of a driver that is replaced",
    "oomcast_gpu_memory_free_bytes": "what is free at the peak is shown, and what is used now",
    "oomcast_gpu_stuck_since_timestamp_seconds": "the timeline of GPU states shows since when",
    "oomcast_gpu_unsupported_fields": "a property of the driver, which does not change",
    "oomcast_ebpf_hits_total": "of probes of one's own, which have boards of their own",
    "oomcast_ebpf_value": "of probes of one's own, which have boards of their own",
    "oomcast_ebpf_cost_seconds_total": "the integral of the ratio that is shown",
    "oomcast_kernel_log_xids_total": "each Xid is counted once in oomcast_xid_errors_total",
    "oomcast_xid_last_timestamp_seconds": "the bars of Xids are where they happened",
    "oomcast_prompt_tokens_lognormal_mu": "a parameter; the share that follows from it is shown",
    "oomcast_prompt_tokens_lognormal_sigma": "a parameter; the share that follows from it is shown",
    "oomcast_slo_objective_seconds": "a setting",
    "oomcast_slo_risk_score": "for reference, and no measure of risk (docs/slo.md)",
}

WITHOUT_BOUNDS = {"Growth": "it falls as well"}
ABOVE_ONE = {"CPU", "Most CPU", "Time in the GPU driver", "What probes cost", "CPU of the child"}
"""Shares of one core."""


class Shown(NamedTuple):
    uid: str
    panel: dict[str, Any]

    @property
    def queries(self) -> list[str]:
        return [target["expr"] for target in self.panel["targets"]]


def every(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from panel.get("panels", ())


PANELS = [Shown(uid, p) for uid, one in BOARDS.items() for p in every(one["panels"]) if p["type"] != "row"]
each_panel = pytest.mark.parametrize("shown", PANELS, ids=[f"{s.uid}: {s.panel['title']}" for s in PANELS])
each_board = pytest.mark.parametrize("uid", UIDS)


def annotations(uid: str) -> list[dict[str, Any]]:
    return list(BOARDS[uid]["annotations"]["list"])


def every_query() -> Iterator[str]:
    yield from (query for shown in PANELS for query in shown.queries)
    yield from (one["expr"] for uid in UIDS for one in annotations(uid))


def objects(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from objects(one)


def test_what_is_committed_is_what_is_generated() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == {
        f"{uid}.json": text for uid, text in GENERATED.items()
    }


@each_board
def test_a_board_can_be_provisioned_anywhere(uid: str) -> None:
    board = BOARDS[uid]
    assert (board["uid"], board["schemaVersion"], board["editable"], board["graphTooltip"]) == (uid, 39, False, 1)
    assert not {"id", "__inputs", "__requires"} & set(board)
    assert all(one["datasource"] == SOURCE for one in objects(board) if "datasource" in one)


@each_board
def test_panels_have_ids_of_their_own_and_room_of_their_own(uid: str) -> None:
    panels = list(every(BOARDS[uid]["panels"]))
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for top in BOARDS[uid]["panels"]:
        inside = top.get("panels") or [top]
        cells = taken if inside == [top] else {}
        for panel in inside:
            where = panel["gridPos"]
            assert where["x"] + where["w"] <= 24, panel["title"]
            for x in range(where["x"], where["x"] + where["w"]):
                for y in range(where["y"], where["y"] + where["h"]):
                    assert cells.setdefault((x, y), panel["title"]) == panel["title"]


@each_board
def test_variables_follow_the_range_and_match_where_a_label_is_absent(uid: str) -> None:
    variables = {one["name"]: one for one in BOARDS[uid]["templating"]["list"]}
    assert list(variables)[:4] == ["datasource", "job", "cluster", "node"]
    for name in set(variables) - {"datasource"}:
        one = variables[name]
        assert (one["refresh"], one["multi"], one["includeAll"]) == (2, True, True), name
        assert one["query"]["query"].endswith(f", {name})")
    assert variables["cluster"]["allValue"] == variables["node"]["allValue"] == ".*"
    assert variables["job"]["allValue"] == ".*oomcast.*"


@each_board
def test_every_variable_of_a_query_is_there(uid: str) -> None:
    names = {one["name"] for one in BOARDS[uid]["templating"]["list"]}
    used = {name for query in all_texts(uid) for name in re.findall(r"\$\{?(\w+)", query)}
    assert used - {"__rate_interval", "__range", "__data", "__url_time_range", "1"} <= names


def all_texts(uid: str) -> Iterator[str]:
    yield from (query for shown in PANELS if shown.uid == uid for query in shown.queries)
    yield from (one["expr"] for one in annotations(uid))
    yield from (one["query"]["query"] for one in BOARDS[uid]["templating"]["list"] if one["type"] == "query")
    yield from (one["url"] for one in objects(BOARDS[uid]["panels"]) if "url" in one)


@each_board
def test_links_lead_to_boards_and_variables_that_are_there(uid: str) -> None:
    for one in objects(BOARDS[uid]):
        path, _, query = one.get("url", "").partition("?")
        if path.startswith("/d/"):
            variables = {v["name"] for v in BOARDS[path.removeprefix("/d/")]["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", query)) | set(re.findall(r"\$\{(\w+):queryparam}", query)) <= variables
            assert query or (one["includeVars"], one["keepTime"]) == (True, True)


@each_board
def test_events_are_drawn(uid: str) -> None:
    colours = {one["name"]: one["iconColor"] for one in annotations(uid)}
    assert colours == {
        "OOM kills": "dark-red",
        "Engine restarts": "purple",
        "Daemon restarts": "#808080",
        "Alerts: critical": "red",
        "Alerts: warning": "orange",
        "Alerts: info": "blue",
    }


@each_panel
def test_a_panel_says_what_it_shows(shown: Shown) -> None:
    panel, defaults = shown.panel, shown.panel["fieldConfig"]["defaults"]
    assert panel["title"]
    assert defaults["unit"]
    assert defaults["noValue"]
    text = panel["description"].split("\n\n")[0]
    assert text.endswith(".")
    assert len(text) > 10
    named = set(re.findall(r"`([\w:]+)`", panel["description"].split("Metrics: ")[1]))
    assert named == {name for query in shown.queries for name in metrics_in(query)}


@each_panel
def test_axes_begin_at_zero_and_ratios_end_at_one(shown: Shown) -> None:
    title, defaults = shown.panel["title"], shown.panel["fieldConfig"]["defaults"]
    assert ("min" in defaults) != (title in WITHOUT_BOUNDS)
    # A logarithm has no zero.
    scale = defaults.get("custom", {}).get("scaleDistribution", {}).get("type")
    assert defaults.get("min", 0) == (0.1 if scale == "log" else 0)
    if defaults["unit"] == "percentunit" and title not in ABOVE_ONE:
        assert defaults["max"] == 1


def drawn(limits: Limits) -> set[float]:
    """Times to exhaustion are drawn in minutes."""
    minutes = {limits[name] / 60 for name in ("exhaustion_critical", "exhaustion_warning")}
    return {0, 1, *limits.values(), *minutes}


def test_a_threshold_of_ones_own_is_drawn_where_that_of_the_table_was() -> None:
    # Lengths are few: they are those that series tell of.
    lengths = {"long_prompt": 131_072, "crash_prompt": 200_000}
    own = Limits({name: lengths.get(name, value * 0.97) for name, value in Limits().items()})
    for path, text in files(Config(own)):
        panels = every(json.loads(text)["panels"])
        every_step = [one["steps"] for one in objects(list(panels)) if isinstance(one.get("steps"), list)]
        steps = {step["value"] for some in every_step for step in some}
        assert steps - {None} <= drawn(own), path


@each_panel
def test_thresholds_are_those_of_the_rules(shown: Shown) -> None:
    every_step = [one["steps"] for one in objects(shown.panel) if isinstance(one.get("steps"), list)]
    steps = [step["value"] for some in every_step for step in some]
    assert set(steps) - {None} <= drawn(Limits())
    custom = shown.panel["fieldConfig"]["defaults"].get("custom", {})
    if shown.panel["type"] == "timeseries":
        assert (custom["thresholdsStyle"]["mode"] == "dashed") == (len(steps) > 1)


@each_panel
def test_legends_name_the_node(shown: Shown) -> None:
    fleetwide = ("sum by (oomcast_engine_state)", "sum by (severity)")
    if shown.panel["type"] in ("timeseries", "state-timeline"):
        for target in shown.panel["targets"]:
            assert "{{node}}" in target["legendFormat"] or target["expr"].startswith(fleetwide)


@each_panel
def test_alerts_that_a_panel_names_exist(shown: Shown) -> None:
    known = {rule.name for rule in RULES if isinstance(rule, Alert)}
    assert set(re.findall(r"\[(Oomcast\w+)]", shown.panel["description"])) <= known


@pytest.mark.parametrize("alert", ALERTS, ids=[f"{a.name} {a.severity}" for a in ALERTS])
def test_the_board_that_an_alert_links_to_tells_of_it(alert: Alert) -> None:
    texts = [shown.panel["description"] for shown in PANELS if shown.uid == f"oomcast-{alert.board}"]
    assert any(f"[{alert.name}](" in text for text in texts)


@pytest.mark.parametrize("query", sorted(set(every_query())))
def test_a_query_asks_for_metrics_and_labels_that_there_are(query: str) -> None:
    LABELS.check(query)


@pytest.mark.parametrize("query", sorted(set(every_query())))
def test_rates_span_as_much_as_a_scrape_needs(query: str) -> None:
    assert not re.search(r"\b(rate|irate|deriv|changes)\([^()]*\[(?!\$__rate_interval])", query)
    assert not {"irate", "avg", "avg_over_time", "stddev"} & calls(parsed(query)), "+Inf must not be averaged"
    assert not re.search(r"sum by \([^)]*\) \(\w+_ratio\b", query), "ratios are not to be summed"


def test_time_that_never_comes_is_not_drawn() -> None:
    for shown in PANELS:
        for query in shown.queries:
            if "oomcast_time_to_exhaustion_seconds" in query and shown.panel["type"] == "timeseries":
                assert re.search(r" < 6000\) / 60, 0\.1\)$", query), shown.panel["title"]
                assert shown.panel["fieldConfig"]["defaults"]["unit"] == "suffix:min"


def test_every_metric_is_on_a_board_or_left_out_for_a_reason() -> None:
    shown = {name for query in every_query() for name in metrics_in(query)}
    families = {name.removesuffix("_bucket") for name in shown}
    assert set(METRICS) - families == set(NOT_SHOWN)
