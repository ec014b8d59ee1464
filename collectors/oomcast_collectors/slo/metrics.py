"""The metric table of objectives, for every collector that has a `Book`. source: what the numbers are drawn from,
"requests" (one by one) or "histograms" (of an engine); up_to: the longest prompt of the class, in tokens."""

from oomcast.metric import Kind, Metric

_ENGINES = 64
_OBJECTIVES = 2
_CLASSES = 12
_NONE = "where no class has such an objective"
_UNSPLIT = "of histograms where classes cannot be told apart (docs/slo.md)"


def _whole(name: str, text: str, absent: str) -> Metric:
    labels = ("engine", "objective", "source")
    return Metric(f"oomcast_slo_{name}", "gauge", text, labels, _ENGINES * _OBJECTIVES, absent=absent)


def _by_class(name: str, kind: Kind, text: str) -> Metric:
    labels = ("engine", "objective", "source", "up_to")
    most = _ENGINES * _OBJECTIVES * _CLASSES
    return Metric(f"oomcast_slo_{name}", kind, text, labels, most, absent=f"{_NONE}; {_UNSPLIT}")


RISK = _whole(
    "violation_risk_ratio",
    "Expected share of requests that miss their objective: the rates of the classes, weighted by their shares of the"
    " prompts of the window.",
    f"{_NONE}; {_UNSPLIT}; without a prompt in the window",
)
VIOLATION_RATIO = _whole(
    "violation_ratio",
    "Share of the requests of the window that missed their objective, or failed where that is told.",
    f"{_NONE}; without a request in the window",
)
CALIBRATION = _whole(
    "calibration_ratio",
    "Violations of the window over those that were predicted: 1 is right, above it there were more.",
    f"{_NONE}; {_UNSPLIT}; with fewer than one violation predicted in the window, when chance alone decides",
)
REQUESTS = _by_class("requests_total", "counter", "Requests of classes with an objective.")
VIOLATIONS = _by_class(
    "violations_total", "counter", "Requests above the objective of their class, or failed where that is told."
)
PREDICTED = _by_class(
    "predicted_violations_total",
    "counter",
    "Violations expected of the same requests, by the rate of their class before they were known.",
)
OBJECTIVE = _by_class(
    "objective_seconds",
    "gauge",
    "Objective in force: of histograms the bucket edge at or above the configured one, as only what is certainly above"
    " it counts.",
)
SCORE = Metric(
    "oomcast_slo_risk_score",
    "gauge",
    "Mean of the risk score (slo.risk_score) over the prompts of the window, for reference.",
    ("engine", "source"),
    _ENGINES,
    absent="where lengths are not told; without a prompt in the window",
)

METRICS: tuple[Metric, ...] = (
    *(RISK, VIOLATION_RATIO, CALIBRATION, REQUESTS, VIOLATIONS, PREDICTED, OBJECTIVE, SCORE),
)
