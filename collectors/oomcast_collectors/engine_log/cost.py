"""What a regular expression can cost at worst.

Python's matcher backtracks and holds the interpreter lock while it does: a bad expression would stop the whole daemon,
and no other thread could end it. So the number of ways it may have to try is bounded before it is ever used.
"""

import re

# Private, but there is no public way to the structure of an expression, and it has been the same since 3.11.
from re import _parser as parser  # type: ignore[attr-defined] # has no public form or stub
from typing import Any

_CEILING = 1e18


def worst_case(pattern: str, length: int) -> float:
    """An upper bound of the ways in which `pattern` can be tried over a text of `length` characters.

    Raises ValueError, saying why, where it is no regular expression.
    """
    try:
        return min(_CEILING, length * _sequence(parser.parse(pattern), length))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"no regular expression: {error}") from error


def _sequence(items: Any, length: int) -> float:
    total = 1.0
    for operation, argument in items:
        total = min(_CEILING, total * _item(str(operation), argument, length))
    return total


def _item(operation: str, argument: Any, length: int) -> float:
    match operation:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, inner = argument
            most = min(int(high), length)
            return float(max(most - low, 0) + 1) * _power(_sequence(inner, length), most)
        case "SUBPATTERN":
            return _sequence(argument[3], length)
        case "BRANCH":
            return float(sum(_sequence(branch, length) for branch in argument[1]))
        case "ASSERT" | "ASSERT_NOT":
            return _sequence(argument[1], length)
        case "ATOMIC_GROUP":
            return _sequence(argument, length)
        case "GROUPREF_EXISTS":
            return float(sum(_sequence(branch, length) for branch in argument[1:] if branch))
        case _:
            return 1.0


def _power(base: float, exponent: int) -> float:
    """Raised as far as it matters."""
    total = 1.0
    for _ in range(exponent if base > 1 else 0):
        total *= base
        if total > _CEILING:
            return _CEILING
    return total
