"""Numbers as the demo prints them; "-" for what the daemon does not say."""

import math

from incident.memory import GB


def gb(value: float | None) -> str:
    return "-" if value is None else f"{value / GB:.1f} GB"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def whole(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def span(seconds: float | None) -> str:
    """Until something is exhausted."""
    if seconds is None:
        return "no forecast"
    return f"{seconds:.0f} s" if math.isfinite(seconds) else "never"
