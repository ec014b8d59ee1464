"""Our metrics and samples as prometheus_client has them."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Exemplar as FamilyExemplar

from oomcast.metric import Exemplar, Histogram, Metric, Sample
from oomcast.store import Store


def empty(metric: Metric) -> Family:
    """The family of a metric, without samples."""
    return Family(metric.family, metric.help, metric.kind)


def filled(metric: Metric, groups: Iterable[Sequence[Sample]]) -> Family:
    """The family of a metric with all its samples."""
    family = empty(metric)
    for group in groups:
        for sample in group:
            _add(family, metric, sample)
    return family


def text(store: Store) -> str:
    """The store in the text format, by way of prometheus_client: slower than exposition.py, and independent of it."""
    registry = CollectorRegistry()
    registry.register(store)
    return generate_latest(registry).decode()


def _add(family: Family, metric: Metric, sample: Sample) -> None:
    labels = dict(sample.series.labels)
    value = sample.value
    if isinstance(value, Histogram):
        for bound, count in value.buckets:
            exemplar = _exemplar(value.exemplars.get(bound))
            family.add_sample(f"{metric.name}_bucket", labels | {"le": bound}, count, exemplar=exemplar)
        family.add_sample(f"{metric.name}_count", labels, value.buckets[-1][1])
        family.add_sample(f"{metric.name}_sum", labels, value.sum)
    elif isinstance(value, str):
        for state in metric.states:
            family.add_sample(metric.name, labels | {metric.name: state}, float(state == value))
    else:
        family.add_sample(metric.name, labels, value, exemplar=_exemplar(sample.exemplar))
    if sample.created is not None:
        family.add_sample(f"{metric.family}_created", labels, sample.created)


def _exemplar(exemplar: Exemplar | None) -> FamilyExemplar | None:
    return exemplar and FamilyExemplar(dict(exemplar.labels), exemplar.value, exemplar.time)
