"""The metric table of the engine_log collector. `engine` is the settings' name, else the unit's or the container's."""

from oomcast.metric import Metric

MAX_ENGINES = 64
OTHER = "other"
_SERIES = MAX_ENGINES + 1
_RULES = 100
_ABSENT = "no log of the engine is there to be read"

EVENTS = Metric(
    "oomcast_log_events_total",
    "counter",
    "Lines of an engine's logs that a rule took; one failure can be many lines.",
    ("rule", "engine"),
    _RULES * _SERIES,
    absent=_ABSENT,
)
LINES = Metric(
    "oomcast_log_lines_total", "counter", "Lines read from an engine's logs.", ("engine",), _SERIES, absent=_ABSENT
)
CUT = Metric(
    "oomcast_log_cut_lines_total",
    "counter",
    "Lines of an engine's logs that were too long; only their first 16 KiB were looked at.",
    ("engine",),
    _SERIES,
    absent=_ABSENT,
)
SKIPPED = Metric(
    "oomcast_log_bytes_skipped_total",
    "counter",
    "Bytes of an engine's logs that were not looked at: ends of long lines, and what came faster than it can be read.",
    ("engine",),
    _SERIES,
    absent=_ABSENT,
)
READ_ERRORS = Metric(
    "oomcast_log_read_errors_total",
    "counter",
    "Attempts to read an engine's logs that failed; a file that is not there is no failure.",
    ("engine",),
    _SERIES,
    absent=_ABSENT,
)
RULES_DISABLED = Metric(
    "oomcast_log_rules_disabled",
    "gauge",
    "Rules that are not used any more because their regular expression took too long.",
    absent="the collector is off, or has no logs to follow",
)
METRICS = (EVENTS, LINES, CUT, SKIPPED, READ_ERRORS, RULES_DISABLED)
