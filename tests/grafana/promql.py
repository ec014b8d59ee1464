"""What a PromQL query of a dashboard asks for: its metrics, functions, and labels that cannot be there."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import promql_parser

from oomcast.metric import Metric
from oomcast.rules.rule import Recording

TARGET = frozenset({"cluster", "node", "job", "instance"})
_RANGES = {"$__rate_interval": "1m", "$__range": "1h"}


def parsed(query: str) -> Any:
    """The tree of a query, with Grafana's ranges filled in; its other variables are inside of strings.

    Raises ValueError where it is no PromQL.
    """
    for variable, value in _RANGES.items():
        query = query.replace(variable, value)
    return promql_parser.parse(query)


def metrics_in(query: str) -> set[str]:
    """Every selector of a board has a name."""
    return {str(node.name) for node in _nodes(parsed(query)) if isinstance(node, promql_parser.VectorSelector)}


def calls(tree: Any) -> set[str]:
    """Functions and aggregations."""
    nodes = list(_nodes(tree))
    functions = {node.func.name for node in nodes if isinstance(node, promql_parser.Call)}
    return functions | {str(node.op) for node in nodes if isinstance(node, promql_parser.AggregateExpr)}


class Labels:
    """The labels that a series may have, by its metric."""

    def __init__(self, metrics: Iterable[Metric], recordings: Iterable[Recording]) -> None:
        metrics = list(metrics)
        self._known: dict[str, frozenset[str]] = {}
        for metric in metrics:
            own = {metric.name} if metric.kind == "stateset" else set()
            self._known[metric.name] = TARGET | set(metric.labels) | own
            if metric.kind == "histogram":
                self._known[f"{metric.name}_bucket"] = self._known[metric.name] | {"le"}
        for recording in recordings:
            clauses = re.findall(r"\bby \(([^)]*)\)", recording.expr)
            self._known[recording.record] = frozenset(label.strip() for one in clauses for label in one.split(","))
        everywhere = {label for metric in metrics for label in metric.labels}
        self._known["up"] = TARGET
        self._known["ALERTS"] = TARGET | everywhere | {"alertname", "alertstate", "severity", "component"}
        self._known["ALERTS_FOR_STATE"] = self._known["ALERTS"] - {"alertstate"}
        self._known["kube_node_status_capacity"] = frozenset({"node", "resource"})

    @property
    def known(self) -> Mapping[str, Collection[str]]:
        return self._known

    def check(self, query: str) -> None:
        """Raises AssertionError for a metric that nobody has, or a label that it cannot have where it is asked for."""
        self._of(parsed(query))

    def _of(self, node: Any) -> frozenset[str]:
        """The labels that the result may have."""
        match node:
            case promql_parser.VectorSelector():
                assert node.name in self._known, f"nobody has a metric {node.name}"
                labels = self._known[node.name]
                asked = {matcher.name for matcher in node.matchers.matchers}
                assert asked <= labels, f"{node.name} has no label {asked - labels}"
                return labels
            case promql_parser.AggregateExpr():
                inner = self._of(node.expr)
                if node.modifier is None:
                    return inner if str(node.op) in ("topk", "bottomk") else frozenset()
                labels = frozenset(node.modifier.labels)
                assert str(node.modifier.type) == "AggModifierType.By"
                assert labels <= inner | TARGET, f"no label {labels - inner} in {node.prettify()}"
                return inner if str(node.op) in ("topk", "bottomk") else labels
            case promql_parser.Call():
                inner = frozenset().union(*(self._of(one) for one in node.args))
                made = {"label_replace": 1, "label_join": 1}.get(node.func.name, 0)
                return inner | {one.val for one in node.args[1 : 1 + made]}
            case promql_parser.BinaryExpr():
                left, right = self._of(node.lhs), self._of(node.rhs)
                matching = node.modifier.matching if node.modifier else None
                for label in matching.labels if matching else ():
                    assert label in left & right | TARGET, f"no label {label} on both sides of {node.prettify()}"
                return left | right
            case _:
                return frozenset().union(*(self._of(one) for one in _children(node)))


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for one in _children(node):
        yield from _nodes(one)


def _children(node: Any) -> list[Any]:
    names = ("expr", "param", "lhs", "rhs", "vector_selector")
    children = [getattr(node, name) for name in names if getattr(node, name, None) is not None]
    return children + list(getattr(node, "args", None) or ())
