"""Several nodes at once, each a process of its own with a GPU driver, an engine and a real daemon, each with a play."""

from fleet.nodes import Fleet, Member, fleet
from fleet.spec import PLAYS, Spec, drawn

__all__ = ["PLAYS", "Fleet", "Member", "Spec", "drawn", "fleet"]
