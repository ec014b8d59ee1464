"""Books to write into, and what they say."""

from collections.abc import Sequence

from oomcast.metric import Sample
from oomcast.slo import LengthClass, Slo

WINDOW = 3600.0

SHORT = LengthClass(up_to=512, prior=0.001, ttft=1.0, e2e=10.0)
MIDDLE = LengthClass(up_to=2048, prior=0.02, ttft=2.0)
LONG = LengthClass(prior=0.4, ttft=4.0, e2e=60.0)
SLO = Slo(classes=(SHORT, MIDDLE, LONG))


def values(samples: Sequence[Sample], objective: str) -> dict[str, float]:
    """By "name" or "name up_to", without what all names begin and end with."""
    found: dict[str, float] = {}
    for sample in samples:
        labels = dict(sample.series.labels)
        if labels.get("objective", objective) == objective:
            assert isinstance(sample.value, int | float)
            name = sample.series.metric.name.removeprefix("oomcast_slo_")
            found[f"{name} {labels['up_to']}" if "up_to" in labels else name] = sample.value
    return found
