"""PromQL with Grafana's variables."""

from typing import Any, NamedTuple

Json = dict[str, Any]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GPU, ENGINE, CGROUP = 'gpu=~"$gpu"', 'engine=~"$engine"', 'cgroup=~"$cgroup"'
KV = 'resource="kv_cache"'
FIRING = 'alertstate="firing"'
NOT_KV = 'resource!="kv_cache"'
"""A full pool kills nothing: its time is no time to a crash."""

_JOB = 'job=~"$job"'
_PLACE = 'cluster=~"$cluster", node=~"$node"'


class Query(NamedTuple):
    """legend: as Grafana's legendFormat."""

    expr: str
    legend: str = ""


def of(metric: str, *matchers: str) -> str:
    """A selector of the chosen nodes' series."""
    return _select(metric, _JOB, _PLACE, *matchers)


def recorded(metric: str, *matchers: str) -> str:
    """A selector of what rules made: recordings and ALERTS, which have no label job."""
    return _select(metric, _PLACE, *matchers)


def by(*labels: str) -> str:
    """The clause that keeps nodes apart, as the rules do."""
    return f"by ({', '.join(('cluster', 'node', *labels))})"


def on(*labels: str) -> str:
    return f"on ({', '.join(('cluster', 'node', *labels))})"


def rate(selector: str) -> str:
    return f"rate({selector}[$__rate_interval])"


def increase(selector: str) -> str:
    return f"increase({selector}[$__rate_interval])"


def per_second(metric: str, *labels: str, where: tuple[str, ...] = ()) -> str:
    """A counter's rate, by node and these labels."""
    return f"sum {by(*labels)} ({rate(of(metric, *where))})"


def risen(metric: str, span: str, *labels: str) -> str:
    """How much a counter rose whose series come with their first event, which increase() cannot see."""
    total = of(metric)
    first = f"({total} unless {total} offset {span})"
    return f"sum {by(*labels)} (round(increase({total}[{span}]) + {first} or {first} or increase({total}[{span}])))"


def short(expr: str, label: str) -> str:
    """The same with a label `short` for legends: the end of a cgroup's path, the beginning of a GPU's UUID."""
    pattern = "(.{1,12}).*" if label == "gpu" else ".*?(.{0,40})"
    return f'label_replace({expr}, "short", "$1", "{label}", "{pattern}")'


def exhaustion(*matchers: str) -> str:
    """Time to exhaustion by object, +Inf where it never comes."""
    objects = by("resource", "cgroup", "gpu", "engine")
    return f"min {objects} ({of('oomcast_time_to_exhaustion_seconds', *matchers)})"


def first(expr: str) -> str:
    """What runs out first, with its labels; +Inf without labels where nothing ever does."""
    return f"bottomk(1, {expr} < Inf) or (min({expr}) == Inf)"


def shortest(expr: str) -> str:
    """The same of what is of a cgroup, or of a GPU."""
    return short(short(expr, "cgroup"), "gpu")


def named(expr: str) -> str:
    """The same with a label `object`: of cgroup, GPU (the beginning of its UUID) and engine the one that it has."""
    joined = f'label_join({expr}, "object", "", "cgroup", "engine")'
    return f'label_replace({joined}, "object", "$1", "gpu", "(.{{1,12}}).*")'


def usable() -> str:
    """Memory of each GPU that can be allocated; some drivers do not tell what they keep."""
    total = f"max {by('gpu')} ({of('oomcast_gpu_memory_total_bytes', GPU)})"
    return f"({total} - max {by('gpu')} ({of('oomcast_gpu_memory_reserved_bytes', GPU)}) or {total})"


def gpu(metric: str) -> str:
    return f"max {by('gpu')} ({of(metric, GPU)})"


def engine(metric: str, *matchers: str) -> str:
    """A gauge of each engine."""
    return f"max {by('engine')} ({of(metric, ENGINE, *matchers)})"


def kills(seconds: float, *labels: str) -> str:
    """OOM kills of the last seconds by node and labels.

    The first of an owner that was not known before is a series that is 1 at once, which increase() cannot see; one that
    began at 0 adds nothing there.
    """
    total, last = of("oomcast_oom_kills_total"), of("oomcast_oom_kill_last_timestamp_seconds")
    span = f"{seconds:.0f}s"
    begun = f"clamp_max(min_over_time({total}[{span}]), 1) unless {total} offset {span}"
    first = f"({begun}) and time() - {last} < {seconds:.0f}"
    each = f"increase({total}[{span}]) + ({first}) or {first} or increase({total}[{span}])"
    # max: two daemons of a node, while one takes the place of the other, count the same kill.
    return f"sum {by(*labels)} (max {by('owner', 'limit_owner')} (round({each})))"


def ranked(metric: str, states: tuple[str, ...], expr_by: str, *matchers: str) -> str:
    """The worst state that holds, as its place in `states`, of which the last is the worst."""
    each = (of(metric, f'{metric}="{state}"', *matchers) for state in states)
    terms = "\n  or ".join(f"{number} * ({one} == 1)" for number, one in enumerate(each))
    return f"max {expr_by} (\n  {terms}\n)"


def _select(metric: str, *matchers: str) -> str:
    return f"{metric}{{{', '.join(matchers)}}}"
