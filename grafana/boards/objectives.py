"""What clients get, and how that compares with what they were promised."""

from boards.panels import BAD, GOOD, WARN, Panel, lines, tile
from boards.query import ENGINE, Query, by, of, per_second, recorded
from oomcast.rules.slo import ratio
from oomcast.rules.thresholds import Limits

_LEGEND = "{{node}} {{engine}}"
_CLASS = f"{_LEGEND} {{{{objective}}}} up to {{{{up_to}}}}"
_UNMET = "no objective is set"


def _each(title: str, text: str, metric: str, label: str, *alerts: str) -> Panel:
    legend = f"{_LEGEND} {{{{{label}}}}}"
    return lines(
        title, text, Query(per_second(metric, "engine", label, where=(ENGINE,)), legend), unit="reqps",
        none="no engine that tells", alerts=alerts,
    )  # fmt: skip


def _per_class(what: str) -> str:
    return per_second(f"oomcast_slo_{what}_total", "engine", "objective", "source", "up_to", where=(ENGINE,))


def answers(limit: Limits) -> tuple[Panel, ...]:
    marks = ((limit["long_failures_warning"], WARN), (limit["long_failures_critical"], BAD))

    def count(metric: str, *matchers: str) -> str:
        return per_second(f"oomcast_request_{metric}_total", "engine", "up_to", where=(ENGINE, *matchers))

    def share(title: str, text: str, part: str, *alerts: str) -> Panel:
        expr = f"{part} / ({count('responses')} > 0)"
        legend = f"{_LEGEND} up to {{{{up_to}}}}"
        return lines(
            title, text, Query(expr, legend), unit="percentunit", maximum=1, none="no messages", limits=marks,
            alerts=alerts,
        )  # fmt: skip

    return (
        share(
            "Server errors by length", "Share of the requests of each length that ended with 5xx.",
            count("responses", 'code="5xx"'), "OomcastLongRequestsFail",
        ),
        share(
            "Empty answers by length", "Share of the requests of each length whose answer had no content.",
            count("empty_responses"), "OomcastLongResponsesEmpty",
        ),
        _each(
            "HTTP responses", "As engines count them: refused and failed requests are in no histogram of lengths.",
            "oomcast_engine_http_responses_total", "code", "OomcastLongRequestsFail",
        ),
    )  # fmt: skip


def panels(limit: Limits) -> tuple[Panel, ...]:
    budget = f"{1 - limit['slo_target']:.6g}"
    risk = f"max {by('engine', 'objective', 'source')} ({of('oomcast_slo_violation_risk_ratio', ENGINE)})"
    missed = f"max {by('engine', 'objective', 'source')} ({of('oomcast_slo_violation_ratio', ENGINE)})"
    paces = ((limit["burn_page_slow"], WARN), (limit["burn_page_fast"], BAD))

    def burn(window: str) -> Query:
        expr = f"max {by('engine', 'objective', 'up_to')} ({recorded(ratio(window), ENGINE)}) / {budget}"
        return Query(expr, f"{_CLASS}, {window}")

    return (
        tile(
            "Worst burn rate", "How many times faster than allowed the budget of a month is used up, in the last hour.",
            Query(f"max({recorded(ratio('1h'), ENGINE)}) / {budget}"), unit="short", steps=paces, none=_UNMET,
            alerts=("OomcastSloBurn",), decimals=1, height=8,
        ),
        lines(
            "Burn rate by length class",
            "How many times faster than allowed a class uses up its budget: both windows above a line are an alert.",
            burn("5m"), burn("1h"), unit="short", none=_UNMET, limits=paces, alerts=("OomcastSloBurn",), width=10,
        ),
        lines(
            "Slow burn by length class", "The same over longer windows: a ticket.",
            burn("6h"), burn("3d"), unit="short", none=_UNMET, width=10, alerts=("OomcastSloBurn",),
            limits=((limit["burn_ticket_slow"], WARN),),
        ),
        lines(
            "Expected and seen to miss their objective",
            "Share of the requests of the window: expected by what lengths come, and what came true.",
            Query(risk, f"{_LEGEND} {{{{objective}}}} {{{{source}}}} expected"),
            Query(missed, f"{_LEGEND} {{{{objective}}}} {{{{source}}}} seen"),
            unit="percentunit", maximum=1, none=_UNMET, limits=((limit["slo_risk"], WARN),), alerts=("OomcastSloRisk",),
            width=12,
        ),
        lines(
            "Missed objectives by length class", "Share of the requests of each class that missed their objective.",
            Query(f"{_per_class('violations')} / ({_per_class('requests')} > 0)", f"{_CLASS} {{{{source}}}}"),
            unit="percentunit", maximum=1, none=_UNMET, alerts=("OomcastSloBurn",), width=12,
        ),
    )  # fmt: skip


def calibration() -> Panel:
    by_class = f"{_per_class('violations')} / ({_per_class('predicted_violations')} > 0)"
    right = f"max {by('engine', 'objective', 'source')} ({of('oomcast_slo_calibration_ratio', ENGINE)})"
    return lines(
        "Calibration",
        "Objectives missed over those expected to be missed, of the window and by class: 1 is right, above it more were"
        " missed than expected. What is above ten is drawn as ten.",
        Query(f"clamp_max({right}, 10)", f"{_LEGEND} {{{{objective}}}} {{{{source}}}}"),
        Query(f"clamp_max({by_class}, 10)", f"{_CLASS} {{{{source}}}}"),
        unit="short", none=_UNMET, alerts=("OomcastSloRisk",), limits=((1, GOOD),), width=24,
    )  # fmt: skip


def more() -> tuple[Panel, ...]:
    untraced = of("oomcast_request_untraced_responses_total", ENGINE)
    return (
        _each(
            "Requests that ended", "By the engine's own reason.",
            "oomcast_engine_requests_finished_total", "reason", "OomcastQueuePileUp",
        ),
        _each(
            "Refused requests", "Before admission, by reason.",
            "oomcast_engine_rejections_total", "reason", "OomcastContextNeverFits",
        ),
        _each(
            "Shortest answers", "Answers of at most so many tokens: empty ones are among them.",
            "oomcast_engine_short_responses_total", "tokens", "OomcastLongResponsesEmpty",
        ),
        lines(
            "Corrupted answers", "Responses with NaN among their logits, where the engine counts them.",
            Query(per_second("oomcast_corrupted_responses_total", "engine", where=(ENGINE,)), _LEGEND),
            unit="reqps", none="no engine that tells", alerts=("OomcastCorruptedResponses",),
        ),
        lines(
            "Requests that cannot be traced", "Without a trace id, or without a user or tenant, as senders tell.",
            Query(f"sum {by('engine')} (rate({untraced}[$__rate_interval]))", f"{_LEGEND} untraced"),
            Query(per_second("oomcast_request_unidentified_total", "engine", "missing", where=(ENGINE,)),
                  f"{_LEGEND} without {{{{missing}}}}"),
            unit="reqps", none="no messages",
        ),
        lines(
            "Tokens of answers", "By messages.",
            Query(per_second("oomcast_request_output_tokens_total", "engine", where=(ENGINE,)), _LEGEND),
            unit="ops", none="no messages", alerts=("OomcastLongResponsesEmpty",),
        ),
    )  # fmt: skip
