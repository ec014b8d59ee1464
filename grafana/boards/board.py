"""Boards: rows of panels, variables, annotations, links, and all that as Grafana's JSON."""

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from boards.panels import BAD, NOTICE, WARN, Panel, targets
from boards.query import FIRING, SOURCE, Json, by, increase, of, recorded
from oomcast.rules.config import Config

COLUMNS = 24
_STEP = "15s"
"""Of annotations, the shortest interval that Grafana asks at."""

_METRIC = re.compile(
    r"\b(?:[a-z]+:)?(?:oomcast|process|kube)_[a-z0-9_]+(?::[a-z0-9_]+)?(?=[{\[ )])|\b(?:up|ALERTS)(?={)"
)
_TITLES = {
    "fleet": "Fleet",
    "node": "Node",
    "long-context": "Long context and KV cache",
    "forensics": "OOM forensics",
    "itself": "oomcast itself",
}


@dataclass(frozen=True, slots=True)
class Row:
    """collapsed: for what few nodes have."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """key: the uid after oomcast-. variables: beside datasource, job, cluster and node."""

    key: str
    text: str
    rows: tuple[Row, ...]
    variables: tuple[str, ...] = ()
    since: str = "now-3h"
    refresh: str = "30s"


def render(board: Board, config: Config) -> str:
    """The JSON of a dashboard. Raises ValueError where two panels would have one id."""
    panels = list(_placed(board, config))
    ids = [one["id"] for panel in panels for one in (panel, *panel.get("panels", ()))]
    if len(set(ids)) < len(ids):
        raise ValueError(f"{board.key}: two panels have one id: rename one")
    dashboard = {
        "uid": f"oomcast-{board.key}",
        "title": f"oomcast / {_TITLES[board.key]}",
        "description": board.text,
        "tags": ["oomcast"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": board.since, "to": "now"},
        "refresh": board.refresh,
        "links": [_link(key) for key in _TITLES if key != board.key],
        "annotations": {"list": list(_annotations())},
        "templating": {"list": list(_variables(board.variables, config))},
        "panels": panels,
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _placed(board: Board, config: Config) -> Iterator[Json]:
    """Panels from left to right, and a new line where one has no room."""
    y = 0
    for row in board.rows:
        inner: list[Json] = []
        x, top, below = 0, y + 1, y + 1
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, top = 0, below
            where = {"x": x, "y": top, "w": panel.width, "h": panel.height}
            inner.append(_panel(panel, _id(f"{row.title}/{panel.title}"), where, config))
            x, below = x + panel.width, max(below, top + panel.height)
        head = {"type": "row", "id": _id(row.title), "title": row.title, "collapsed": row.collapsed}
        yield {**head, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": inner if row.collapsed else []}
        if not row.collapsed:
            yield from inner
        y = y + 1 if row.collapsed else below


def _panel(panel: Panel, number: int, where: Json, config: Config) -> Json:
    return {
        "id": number,
        "title": panel.title,
        "description": _description(panel, config),
        "gridPos": where,
        **panel.body,
        "targets": targets(panel),
    }


def _id(name: str) -> int:
    """Alerts and people link to panels: what is put before one must not change its number."""
    return zlib.crc32(name.encode()) % 1_000_000 + 1


def _description(panel: Panel, config: Config) -> str:
    names = sorted({name for query in panel.queries for name in _METRIC.findall(query.expr)})
    text = f"{panel.text}\n\nMetrics: {', '.join(f'`{name}`' for name in names)}."
    if panel.alerts:
        links = ", ".join(f"[{name}]({config.runbooks.format(alert=name)})" for name in panel.alerts)
        text += f"\n\nAlerts: {links}."
    return text


def _link(key: str) -> Json:
    return {
        "type": "link",
        "title": _TITLES[key],
        "url": f"/d/oomcast-{key}",
        "icon": "dashboard",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "asDropdown": False,
        "tags": [],
        "tooltip": "",
    }


@dataclass(frozen=True, slots=True)
class _Variable:
    """every: what All stands for; without it all values that are listed. A label that is absent matches `.*` too."""

    name: str
    label: str
    selector: str
    every: str = ".*"


_SCOPE = 'job=~"$job", cluster=~"$cluster", node=~"$node"'
_COMMON = (
    _Variable("cluster", "Cluster", 'up{job=~"$job"}'),
    _Variable("node", "Node", 'up{job=~"$job", cluster=~"$cluster"}'),
)
_MORE = {
    "gpu": _Variable("gpu", "GPU", f"oomcast_gpu_up{{{_SCOPE}}}"),
    "cgroup": _Variable("cgroup", "Cgroup", f"oomcast_cgroup_memory_used_bytes{{{_SCOPE}}}"),
    "model": _Variable("model", "Model", f"oomcast_engine_info{{{_SCOPE}}}"),
    "engine": _Variable("engine", "Engine", f"oomcast_engine_up{{{_SCOPE}}}"),
}
_OF_MODEL = f'{{__name__=~"oomcast_engine_info|oomcast_request_responses_total", {_SCOPE}, model=~"$model"}}'


def _variables(more: tuple[str, ...], config: Config) -> Iterator[Json]:
    yield {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "regex": "",
        "hide": 0,
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "options": [],
        "current": {},
    }
    chosen = [_MORE[name] for name in more]
    if "model" in more:
        # Without allValue, as only the engines of the model are to be left.
        chosen = [replace(one, selector=_OF_MODEL, every="") if one.name == "engine" else one for one in chosen]
    # As the rules have it, so that a node whose oomcast has been down for long is among all jobs.
    job = _Variable("job", "Job", "oomcast_build_info", every=config.job)
    for one in (job, *_COMMON, *chosen):
        query = f"label_values({one.selector}, {one.name})"
        variable = {
            "type": "query",
            "name": one.name,
            "label": one.label,
            "datasource": SOURCE,
            "definition": query,
            "query": {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery", "qryType": 5},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "regex": "",
            "hide": 0,
            "options": [],
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }
        yield variable | ({"allValue": one.every} if one.every else {})


def _annotations() -> Iterator[Json]:
    last = of("oomcast_oom_kill_last_timestamp_seconds")
    kills = f"1000 * max {by('owner', 'limit_owner')} ({last})"
    yield _annotation(
        "OOM kills", "dark-red", kills, "OOM kill on {{node}}: {{owner}}", "limit of {{limit_owner}}", True
    )
    restarts = f"sum {by('engine')} ({increase(of('oomcast_engine_restarts_total'))}) > 0"
    yield _annotation("Engine restarts", "purple", restarts, "Restart on {{node}}: {{engine}}", "")
    starts = f"1000 * max {by()} ({of('process_start_time_seconds')})"
    yield _annotation("Daemon restarts", "#808080", starts, "oomcast started on {{node}}", "", True)
    for severity, colour in (("critical", BAD), ("warning", WARN), ("info", NOTICE)):
        matchers = ('alertname=~"Oomcast.*"', f'severity="{severity}"')
        labels = ("alertname", "engine", "cgroup", "gpu", "owner", "collector")
        # The value is when it began: of a long range Grafana asks every few minutes, and sees no beginning.
        began = f"1000 * max {by(*labels)} ({recorded('ALERTS_FOR_STATE', *matchers)})"
        firing = f"max {by(*labels)} ({recorded('ALERTS', *matchers, FIRING)})"
        text = "{{engine}} {{cgroup}} {{gpu}} {{owner}} {{collector}}"
        both = f"{began} and {firing}"
        yield _annotation(f"Alerts: {severity}", colour, both, "{{alertname}} on {{node}}", text, True)


def _annotation(name: str, colour: str, expr: str, title: str, text: str, at_value: bool = False) -> Json:
    """at_value: the values are times in milliseconds."""
    made = {
        "name": name,
        "datasource": SOURCE,
        "enable": name != "Alerts: info",
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": _STEP,
        "titleFormat": title,
        "textFormat": text,
        "tagKeys": "node",
    }
    return made | ({"useValueForTime": "on"} if at_value else {})
