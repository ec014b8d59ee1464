"""All rules, in the order in which they are written."""

from collections.abc import Iterator, Sequence

from oomcast.rules import engine, gpu, itself, kills, memory, requests, slo
from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Group


def groups(config: Config) -> tuple[Group, ...]:
    themes = tuple(theme.group(config) for theme in (memory, gpu, engine, requests, kills))
    return (*themes, *slo.groups(config), itself.group(config))


def alerts(some: Sequence[Group]) -> Iterator[Alert]:
    return (rule for group in some for rule in group.rules if isinstance(rule, Alert))
