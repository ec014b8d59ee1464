"""What `make dashboards` takes for a mistake."""

import pytest

from gallery.without import reason, unneeded
from grafana.test_boards import every_query


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ('sum by (node) (increase(oomcast_xid_errors_total{node=~"a"}[4s])) > 0', "oomcast_xid_errors_total"),
        ('max by (gpu) (oomcast_gpu_mig_memory_used_bytes{node=~"a"})', "oomcast_gpu_mig_*"),
        ('count by (job, instance) (up{job=~"a", node=""})', 'node=""'),
        # A name that is longer is another metric.
        ("oomcast_xid_errors_totals{}", None),
        ('count(max by (node) (up{node=~"a"}) == 1)', None),
        ("oomcast_kv_cache_usage_ratio{}", None),
    ],
)
def test_a_reason_is_that_of_a_metric(query: str, why: str | None) -> None:
    assert reason(query) == why


def test_every_reason_is_for_something_that_a_board_asks_for() -> None:
    reasons = {reason(query) for query in every_query()}
    assert list(unneeded({one for one in reasons if one is not None})) == []


def test_a_reason_that_explained_nothing_is_told() -> None:
    every = {one for one, _ in unneeded(())}
    assert list(unneeded(every - {"oomcast_uvm_*"})) == [("oomcast_uvm_*", "no program has CUDA")]
