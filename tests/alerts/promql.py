"""Expressions taken apart, by the parser that knows Prometheus' grammar."""

from collections.abc import Iterator
from typing import Any

import promql_parser

Node = promql_parser.Expr


def parts(expr: str) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Each node of an expression with those around it, the outermost first. Raises ValueError on what is no PromQL."""
    yield from _below(promql_parser.parse(expr), ())


def _below(node: Node, around: tuple[Node, ...]) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    yield node, around
    for child in _children(node):
        yield from _below(child, (*around, node))


def _children(node: Any) -> list[Node]:
    if isinstance(node, promql_parser.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql_parser.Call):
        return list(node.args)
    if isinstance(node, promql_parser.MatrixSelector):
        return [node.vector_selector]
    if isinstance(node, promql_parser.AggregateExpr):
        return [node.expr, *([node.param] if isinstance(node.param, promql_parser.Expr) else [])]
    inner = getattr(node, "expr", None)
    return [inner] if isinstance(inner, promql_parser.Expr) else []


def of(kind: Any, expr: str) -> list[Any]:
    """The nodes of one kind."""
    return [node for node, _ in parts(expr) if isinstance(node, kind)]


def names(expr: str) -> set[str]:
    """The metrics that are read."""
    return {node.name for node in of(promql_parser.VectorSelector, expr)}


def functions(around: tuple[Node, ...]) -> set[str]:
    """The functions that a node stands in."""
    return {node.func.name for node in around if isinstance(node, promql_parser.Call)}


def compares(expr: str) -> bool:
    """Whether something is compared, or asked to be absent."""
    operators = {str(node.op) for node in of(promql_parser.BinaryExpr, expr)}
    called = {node.func.name for node in of(promql_parser.Call, expr)}
    return bool(operators & {"<", ">", "<=", ">=", "==", "!="}) or "absent" in called
