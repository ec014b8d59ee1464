"""Envoy, as the gateway before engines: retries and circuit breakers of its clusters, responses to its clients."""

from dataclasses import replace

from oomcast_collectors.engine.kinds.rows import Row, Table
from oomcast_collectors.engine.kinds.samples import Samples, Where
from oomcast_collectors.engine.reading import Reading

_BREAKERS = frozenset(
    f"envoy_cluster_circuit_breakers_{priority}_{what}_open"
    for priority in ("default", "high")
    for what in ("cx", "cx_pool", "rq", "rq_pending", "rq_retry")
)
# Not what its own admin page is asked for.
_CLIENTS = Where("envoy_http_conn_manager_prefix", "(?!admin$).*")
_CLASS = "envoy_response_code_class"

_ROWS = (
    Row("retries", ("envoy_cluster_upstream_rq_retry",)),
    Row("http", ("envoy_http_downstream_rq_xx",), by=_CLASS, form="{}xx", where=_CLIENTS),
    Row("http", ("envoy_cluster_upstream_rq_xx",), by=_CLASS, form="{}xx"),
    Row("running", ("envoy_http_downstream_rq_active",), where=_CLIENTS),
    Row("waiting", ("envoy_cluster_upstream_rq_pending_active",)),
    Row("rejected", ("envoy_cluster_upstream_rq_pending_overflow",), label="overflow"),
)


def _finish(samples: Samples, reading: Reading) -> Reading:
    states = [state for name in _BREAKERS for state in samples.values(name, add=False).values()]
    return replace(reading, breaker_open=any(states) if states else None)


TABLE = Table("envoy", _ROWS, model="", finish=_finish, more=_BREAKERS)
