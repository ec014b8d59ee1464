"""Tables of what is so now."""

from collections.abc import Sequence
from dataclasses import dataclass

from boards.panels import Panel, Steps, body_of, steps_of
from boards.query import Json, Query


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a label, or the value of a query (#A, #B ..). steps: coloured cells."""

    field: str
    title: str
    unit: str = "short"
    steps: Steps = ()
    base: str = "transparent"
    mapping: Json | None = None
    link: str = ""
    width: int = 0
    decimals: int | None = None


def table(
    title: str, text: str, *queries: Query, columns: Sequence[Column], sort: Sequence[str] = (),
    alerts: tuple[str, ...] = (), none: str = "none", width: int = 24, height: int = 8,
) -> Panel:  # fmt: skip
    """Instant queries, joined on all labels that they share. sort: titles of columns, - for the largest first."""
    body = body_of("table", "short", 0, None, none, (), "transparent", {"custom": {"align": "auto"}})
    single = len(queries) == 1
    fields = [_field(one.field, single) for one in columns]
    body["options"] = {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
        "sortBy": [{"displayName": one.lstrip("-"), "desc": one.startswith("-")} for one in sort],
    }
    body["fieldConfig"]["overrides"] = [_column(one) for one in columns]
    body["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": fields}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {name: index for index, name in enumerate(fields)},
                "renameByName": {name: one.title for name, one in zip(fields, columns, strict=True)},
            },
        },
    ]
    return Panel(title, text, queries, body, alerts, width, height)


def _field(field: str, single: bool) -> str:
    """How Grafana calls a column: of one query Value, of several Value #A."""
    return ("Value" if single else f"Value {field}") if field.startswith("#") else field


def _column(one: Column) -> Json:
    properties: list[Json] = [{"id": "unit", "value": one.unit}]
    if one.steps:
        properties.append({"id": "thresholds", "value": steps_of(one.steps, one.base)})
    if one.steps or one.mapping:
        properties.append({"id": "custom.cellOptions", "value": {"type": "color-background", "mode": "basic"}})
    if one.mapping:
        properties.append({"id": "mappings", "value": [one.mapping]})
    if one.link:
        properties.append({"id": "links", "value": [{"title": "Open", "url": one.link}]})
    if one.width:
        properties.append({"id": "custom.width", "value": one.width})
    if one.decimals is not None:
        properties.append({"id": "decimals", "value": one.decimals})
    return {"matcher": {"id": "byName", "options": one.title}, "properties": properties}
