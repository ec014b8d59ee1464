"""What a user may choose of the rules: thresholds, selectors, labels, addresses; and how it is said in PromQL."""

import re
from dataclasses import dataclass, field

from oomcast.rules.thresholds import Limits

RUNBOOKS = "https://github.com/oomcast/oomcast/blob/main/alerts/runbooks/{alert}.md"
JOB = ".*oomcast.*"
_OWN = re.compile(
    "above|bound|by|cgroup|chore|code|collector|engine|gpu|input|job|kind|limit_owner|metric|module|objective|owner|probe"
    "|process|reason|resource|rule|signal|source|up_to|xid|oomcast_engine_state|oomcast_gpu_state"
)
"""Labels that oomcast's own series have, or rules make: none of them can be a target's."""

_TEXT = r'"(?:[^"\\\n]|\\.)*"'
_MATCHERS = re.compile(
    rf"\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*{_TEXT}\s*(?:,\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*{_TEXT}\s*)*\Z"
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")

_ADDRESS = re.compile(r"[^\s\"'`\\<>]*\Z")
_WORDS = {
    60: "a minute",
    120: "two minutes",
    300: "five minutes",
    600: "ten minutes",
    900: "a quarter of an hour",
    1800: "half an hour",
    3600: "an hour",
    21_600: "six hours",
    86_400: "a day",
}


@dataclass(frozen=True, slots=True)
class Config:
    """limits: the thresholds. job: regular expression that oomcast's jobs match. match: label matchers for every
    selector, such as `env="prod"`. by: target labels that name a node, the node itself last; every rule keeps them.
    runbooks: address of a runbook, with {alert}. grafana: where Grafana is, "" for links within it.
    """

    limits: Limits = field(default_factory=Limits)
    job: str = JOB
    match: str = ""
    nodes: tuple[str, ...] = ("cluster", "node")
    runbooks: str = RUNBOOKS
    grafana: str = ""

    def __post_init__(self) -> None:
        for label in self.nodes:
            if not _LABEL.match(label):
                raise ValueError(f"{label!r} is no name of a label")
            if _OWN.fullmatch(label):
                raise ValueError(f"{label} is a label of oomcast's own and cannot name a node")
        if not self.nodes:
            raise ValueError("without a label that names the node all nodes would be one")
        if len(set(self.nodes)) < len(self.nodes):
            raise ValueError("a label that names a node should be there once")
        if self.match and not _MATCHERS.match(self.match):
            raise ValueError(f'{self.match!r} should be matchers without braces, such as env="prod"')
        _understood(self.job)
        for quote in re.findall(rf"[=!]~\s*({_TEXT})", self.match):
            _understood(re.sub(r"\\(.)", r"\1", quote[1:-1]))
        if "{alert}" not in self.runbooks:
            raise ValueError("the address of runbooks should contain {alert}")
        for address in (self.runbooks, self.grafana):
            if not _ADDRESS.match(address):
                raise ValueError(f"{address!r} is no address: it has spaces, quotes or the like")

    @property
    def where(self) -> str:
        """The node, in texts of alerts."""
        return f"{{{{ $labels.{self.nodes[-1]} }}}}"

    def by(self, *labels: str) -> str:
        return f"by ({', '.join((*self.nodes, *labels))})"

    def on(self, *labels: str) -> str:
        return f"on ({', '.join((*self.nodes, *labels))})"

    def of(self, metric: str, matchers: str = "") -> str:
        """A selector. matchers: without braces."""
        inside = ", ".join(part for part in (matchers, self.match) if part)
        return f"{metric}{{{inside}}}" if inside else metric

    def own(self, metric: str, matchers: str = "") -> str:
        """A selector of a metric that other jobs have too: up, process_resident_memory_bytes."""
        return self.of(metric, ", ".join(part for part in (f'job=~"{quoted(self.job)}"', matchers) if part))

    def span(self, name: str) -> str:
        """A threshold as a PromQL duration."""
        return duration(self.limits[name])

    def ago(self, seconds: float) -> str:
        """A duration that is no threshold, scaled like them."""
        return duration(seconds / self.limits.scale)

    def said(self, name: str) -> str:
        """A threshold that is a time, in words, and as it was before it was scaled."""
        seconds = self.limits[name] * self.limits.scale
        return _WORDS.get(round(seconds), duration(seconds))

    def tokens(self, name: str) -> str:
        """A threshold that is a length of prompts, in words: 64K, or 100,000."""
        whole, rest = divmod(self.limits[name], 1024)
        return f"{self.limits[name]:,.0f}" if rest else f"{whole:.0f}K"

    def value(self, name: str) -> str:
        """A threshold as a PromQL number."""
        return f"{self.limits[name]:.6g}"


def _understood(expression: str) -> None:
    """Raises ValueError for what cannot be a regular expression; Prometheus' kind is close to Python's."""
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(f"{expression!r} is no regular expression: {error}") from None


def quoted(text: str) -> str:
    """The inside of a double-quoted PromQL string."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def duration(seconds: float) -> str:
    """As Prometheus writes it: 90s is 1m30s, 0.1 s is 100ms."""
    rest = round(seconds * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
