"""Metrics that boards ask for and that no node has: `or vector(0)` gives data where a name is wrong, too."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterable, Set

from gallery.without import reason

_NAME = re.compile(r"\b(?:[a-z]+:)?(?:oomcast|process)_[a-z0-9_]+(?::[a-z0-9_]+)?(?=\{)")


def unknown(queries: Iterable[str], prometheus: str, since: float, until: float) -> Set[str]:
    """Names that had no series between the two times, in seconds since the epoch, and no reason for that.

    Raises OSError or ValueError where Prometheus does not answer.
    """
    asked = {name for query in queries for name in _NAME.findall(query)}
    return {name for name in asked - _known(prometheus, since, until) if reason(name) is None}


def _known(prometheus: str, since: float, until: float) -> Set[str]:
    span = urllib.parse.urlencode({"start": since, "end": until})
    with urllib.request.urlopen(f"{prometheus}/api/v1/label/__name__/values?{span}", timeout=10) as answer:
        return set(json.load(answer)["data"])
