"""Objectives of the settings: how fast the error budget burns, by length class, and what the lengths put at risk."""

from oomcast.rules.config import Config
from oomcast.rules.rule import Alert, Group, Recording

WINDOWS = {"5m": 300, "30m": 1800, "1h": 3600, "2h": 7200, "6h": 21_600, "1d": 86_400, "3d": 259_200}
"""Seconds by the name that recordings carry, scaled or not."""

LABELS = ("engine", "objective", "up_to")


PROMPTS = (
    '{{ if eq $labels.up_to "+Inf" }}the longest prompts{{ else }}prompts up to {{ $labels.up_to }} tokens{{ end }}'
)
"""In texts: the class of lengths."""


def ratio(window: str) -> str:
    return f"engine:oomcast_slo_violations:ratio_rate{window}"


INTERVAL = 120.0
"""Seconds between two samples of what long windows are made of: three days of each scrape would be 17,000 of each
series, at every evaluation. Less than the five minutes for which a sample is looked back for."""


def groups(c: Config) -> tuple[Group, Group]:
    """What looks far back goes slowly; the page goes on what is new."""
    page, ticket = _burn(c)
    counters = (_counter(c, what) for what in ("requests", "violations", "predicted_violations"))
    far = (_recording(c, window) for window in ("30m", "1h", "2h", "6h", "1d", "3d"))
    slow = Group("oomcast-slo-long", (*counters, *far, ticket, _risk(c)), INTERVAL / c.limits.scale)
    return slow, Group("oomcast-slo", (_recording(c, "5m"), page))


def _counter(c: Config, what: str) -> Recording:
    total = c.of(f"oomcast_slo_{what}_total")
    why = "A counter again, with a sample now and then. The largest: while two daemons of a node overlap each counts."
    return Recording(_sampled(what), f"max {c.by(*LABELS, 'source')} ({total})", why)


def _sampled(what: str) -> str:
    return f"engine:oomcast_slo_{what}:max"


def _rate(c: Config, what: str, source: str, window: str) -> str:
    matcher = f'source="{source}"'
    total = c.of(f"oomcast_slo_{what}_total", matcher) if window == "5m" else f"{_sampled(what)}{{{matcher}}}"
    return f"sum {c.by(*LABELS)} (rate({total}[{c.ago(WINDOWS[window])}]))"


def _recording(c: Config, window: str) -> Recording:
    def of(source: str) -> str:
        return f"{_rate(c, 'violations', source, window)}\n/ ({_rate(c, 'requests', source, window)} > 0)"

    why = "Share of the requests that missed their objective: as messages tell, else as the engine's histograms do."
    return Recording(ratio(window), f"{of('requests')}\nor\n{of('histograms')}", why)


def _requests(c: Config, window: str) -> str:
    """Those that the ratio of the window is of."""
    by_source = (
        f"sum {c.by(*LABELS)} (increase({_sampled('requests')}{{{one}}}[{c.ago(WINDOWS[window])}]))"
        for one in ('source="requests"', 'source="histograms"')
    )
    return " > 0 or ".join(by_source)


def _burn(c: Config) -> tuple[Alert, ...]:
    budget = 1 - c.limits["slo_target"]

    def burns(short: str, long: str, factor: str) -> str:
        limit = f"{c.limits[factor] * budget:.6g}"
        enough = f"({_requests(c, long)}) >= {c.value('slo_least_requests')}"
        return f"{ratio(long)} > {limit}\nand {ratio(short)} > {limit}\nand {c.on(*LABELS)} {enough}"

    summary = f"{{{{ $labels.engine }}}} on <node> misses the {{{{ $labels.objective }}}} objective of {PROMPTS}"
    text = (
        f"{{{{ $value | humanizePercentage }}}} of the requests to {{{{ $labels.engine }}}} on <node> with {PROMPTS}"
        " missed their {{ $labels.objective }} objective, PACE. Next: the board shows whether long prompts, the queue"
        " or preemptions make them late."
    )
    return (
        Alert(
            "OomcastSloBurn", "critical", "requests", "symptom",
            f"(\n{burns('5m', '1h', 'burn_page_fast')}\n)\nor\n(\n{burns('30m', '6h', 'burn_page_slow')}\n)",
            summary, text.replace("PACE", "and the error budget of a month is gone within days"),
            "Two windows at once are neither late nor nervous, so no `for`. Only classes with an objective have"
            " series.",
            keep=c.limits["keep"], sample=INTERVAL, board="long-context",
        ),
        Alert(
            "OomcastSloBurn", "warning", "requests", "symptom",
            f"(\n{burns('2h', '1d', 'burn_ticket_fast')}\n)\nor\n(\n{burns('6h', '3d', 'burn_ticket_slow')}\n)",
            summary, text.replace("PACE", "more than the error budget of a month allows"),
            "A ticket, not a page. While a series is young all windows say the same; the page silences the ticket.",
            keep=c.limits["keep_warning"], sample=INTERVAL, board="long-context",
        ),
    )  # fmt: skip


def _risk(c: Config) -> Alert:
    def of(source: str) -> str:
        predicted, requests = (f'{_sampled(one)}{{source="{source}"}}' for one in ("predicted_violations", "requests"))
        asked, late = (f"sum {c.by(*LABELS)} (increase({one}[{c.ago(3600)}]))" for one in (requests, predicted))
        enough = f"({asked} >= {c.value('slo_least_requests')})"
        return f"{late} / {enough}\nand {c.on(*LABELS)} max {c.by(*LABELS)} ({requests}) >= {c.value('slo_measured')}"

    return Alert(
        "OomcastSloRisk", "warning", "requests", "forecast",
        f"(\n{of('requests')}\nor\n{of('histograms')}\n) > {c.value('slo_risk')}",
        f"{{{{ $value | humanizePercentage }}}} of {PROMPTS} to {{{{ $labels.engine }}}} on <node> are expected to miss"
        " their {{ $labels.objective }} objective",
        "By what was measured on {{ $labels.engine }} on <node> {{ $value | humanizePercentage }} of"
        f" {PROMPTS} miss their {{{{ $labels.objective }}}} objective. Next: give this class of lengths an engine of"
        " its own, or another objective.",
        "A ticket. Only of classes whose rate was measured on a thousand requests: before, it is an assumption.",
        hold=c.limits["allocation_hold"], keep=c.limits["keep_warning"], board="long-context",
    )  # fmt: skip
