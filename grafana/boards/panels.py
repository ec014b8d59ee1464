"""Panels: what all of them have, and a function for each kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from boards.query import SOURCE, Json, Query

GOOD, NOTICE, WARN, BAD, NEUTRAL = "green", "blue", "orange", "red", "text"
"""NOTICE, WARN and BAD are the severities info, warning and critical, everywhere."""

Steps = Sequence[tuple[float, str]]
"""From this value on that colour."""

Colours = Mapping[str, str]
"""Colours by regular expression of the series' names."""

LIMIT = "dark-red"
LIMITS: Colours = {".*(limit|usable)": LIMIT}
USUAL: Colours = {".*(usual|median)": "purple"}
"""Both are dashed."""

_NEVER = {
    "type": "range",
    "options": {"from": 1e12, "to": None, "result": {"text": "none", "color": "transparent", "index": 0}},
}


@dataclass(frozen=True, slots=True)
class Panel:
    """text: what it says, for a person at night. alerts: those that read the same. body: the rest of its JSON."""

    title: str
    text: str
    queries: tuple[Query, ...]
    body: Json
    alerts: tuple[str, ...] = ()
    width: int = 8
    height: int = 8


def lines(
    title: str, text: str, *queries: Query, unit: str, alerts: tuple[str, ...] = (), limits: Steps = (),
    maximum: float | None = None, minimum: float | None = 0, none: str = "none", width: int = 8, height: int = 8,
    stacked: bool = False, bars: bool = False, powers: bool = False, colours: Colours | None = None,
    decimals: int | None = None, least: str = "",
) -> Panel:  # fmt: skip
    """Over time. limits: drawn as lines, which is all that their colours are for. powers: of ten, on the scale.

    least: what the minimum is called.
    """
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        "lineWidth": 1,
        "fillOpacity": 60 if bars else 25 if stacked else 0,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
    }
    defaults: Json = {"color": {"mode": "palette-classic"}, "custom": custom}
    if least and minimum:
        defaults["mappings"] = [{"type": "value", "options": {f"{minimum:g}": {"text": least, "index": 0}}}]
    body = body_of("timeseries", unit, minimum, maximum, none, limits, "transparent", defaults, decimals)
    if powers:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    if maximum is None and unit in ("short", "ops", "reqps"):
        custom["axisSoftMax"] = 1
    body["options"] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    body["fieldConfig"]["overrides"] = [_coloured(name, colour) for name, colour in (colours or {}).items()]
    return Panel(title, text, queries, body, alerts, width, height)


def tile(
    title: str, text: str, *queries: Query, unit: str, alerts: tuple[str, ...] = (), steps: Steps = (),
    maximum: float | None = None, none: str = "none", width: int = 4, height: int = 4,
    never: bool = False, names: bool = False, decimals: int | None = None, places: Json | None = None,
) -> Panel:  # fmt: skip
    """Numbers of now. steps: where they judge, else there is no colour. never: +Inf reads none. names: above them.

    places: a mapping of numbers to names with colours.
    """
    mappings = [one for one in (_NEVER if never else None, places) if one]
    defaults: Json = {"color": {"mode": "thresholds"}, "mappings": mappings}
    body = body_of("stat", unit, 0, maximum, none, steps, "transparent" if steps else NEUTRAL, defaults, decimals)
    body["options"] = {
        "colorMode": "background" if steps or places else "none",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value_and_name" if names else "value",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    if names:
        # Beside a number, which is as large as it gets, a name is too small to be read.
        body["options"] |= {"wideLayout": False, "text": {"titleSize": 14, "valueSize": 32}}
    return Panel(title, text, queries, body, alerts, width, height)


def states(
    title: str, text: str, *queries: Query, names: Sequence[str], colours: Sequence[str], unit: str = "short",
    alerts: tuple[str, ...] = (), none: str = "none", width: int = 12, height: int = 6,
) -> Panel:  # fmt: skip
    """A timeline of states that are numbers, by their place in `names`."""
    defaults: Json = {
        "color": {"mode": "thresholds"},
        "custom": {"lineWidth": 0, "fillOpacity": 80},
        "mappings": [mapping(names, colours)],
    }
    body = body_of("state-timeline", unit, 0, len(names) - 1, none, (), NEUTRAL, defaults)
    body["options"] = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.85,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(title, text, queries, body, alerts, width, height)


def heatmap(
    title: str, text: str, query: Query, *, unit: str, alerts: tuple[str, ...] = (), none: str = "none", width: int = 12
) -> Panel:
    """Of a histogram by le. unit: of the buckets."""
    body = body_of("heatmap", unit, 0, None, none, (), NEUTRAL, {"custom": {"scaleDistribution": {"type": "linear"}}})
    body["options"] = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": unit, "reverse": False},
    }
    return Panel(title, text, (query,), body, alerts, width)


def mapping(names: Sequence[str], colours: Sequence[str]) -> Json:
    """Numbers to names, by place."""
    options = {
        str(number): {"text": name, "color": colour, "index": number}
        for number, (name, colour) in enumerate(zip(names, colours, strict=True))
    }
    return {"type": "value", "options": options}


def never() -> Json:
    """+Inf to none."""
    return _NEVER


def targets(panel: Panel) -> list[Json]:
    """The queries as Grafana has them."""
    kind = panel.body["type"]
    instant = kind in ("stat", "table")
    made = []
    for number, query in enumerate(panel.queries):
        target: Json = {
            "refId": chr(ord("A") + number),
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": instant,
            "range": not instant,
            "format": {"table": "table", "heatmap": "heatmap"}.get(kind, "time_series"),
        }
        made.append(target)
    return made


def body_of(
    kind: str, unit: str, minimum: float | None, maximum: float | None, none: str, steps: Steps, base: str,
    more: Json, decimals: int | None = None,
) -> Json:  # fmt: skip
    """The JSON of a panel without its queries and options. base: the colour below all steps."""
    defaults: Json = {"unit": unit, "noValue": none, "mappings": [], **more}
    bounds = {"min": minimum, "max": maximum, "decimals": decimals}
    defaults |= {name: value for name, value in bounds.items() if value is not None}
    defaults["thresholds"] = steps_of(steps, base)
    return {"type": kind, "datasource": SOURCE, "fieldConfig": {"defaults": defaults, "overrides": []}}


def steps_of(steps: Steps, base: str) -> Json:
    first = [{"color": base, "value": None}]
    return {"mode": "absolute", "steps": first + [{"color": colour, "value": value} for value, colour in steps]}


def _coloured(name: str, colour: str) -> Json:
    properties: list[Json] = [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]
    if name in (*LIMITS, *USUAL):
        properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}})
    return {"matcher": {"id": "byRegexp", "options": f"/{name}/"}, "properties": properties}
