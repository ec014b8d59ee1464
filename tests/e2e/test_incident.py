"""The incident from the first long prompt to the page that people get: the real chain, at many nodes at once.

Five nodes go through the incident, each with users, prompts, order and speed of its own, while others do what looks
like it and is harmless. What is shipped watches them all, with every duration divided by FACTOR: 20 seconds here are
the ten minutes for which a person is paged.

OOMCAST_SEED=N plays the same nodes again.
"""

import re
from itertools import pairwise

import pytest

from e2e.incident_past import CACHE_LIMIT, FACTOR, HARMLESS, POSITIVE, Past, play
from e2e.incident_stack import CLUSTER, generations
from e2e.stack import Message
from requires import missing, needs, require

pytestmark = [needs("cc", "prometheus"), pytest.mark.alone]

VERSIONS = tuple(one.version for one in generations()) if missing("prometheus") is None else ("none",)

KEEP = 600 / FACTOR
"""Seconds for which an alert that pages goes on after its cause."""

SLACK = 10.0
"""Seconds for scrapes, evaluations and groups, on a machine that is busy."""

LEAST_LEAD = 8.0
"""Seconds from the page to the crash: four minutes of the incident's own time, of the ten that the threshold means. The
forecast goes by the pace of the last seconds, which is uneven: the second half of a long prompt takes twice as long as
the first. Measured on a busy machine were 19 to 31 s."""


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return play(tmp_path_factory.mktemp("incident"))


def first(past: Past, version: str, node: str) -> Message:
    """The message that opens the page of a node."""
    pages = past.pages(version, node)
    assert pages, past.told(version, node)
    return pages[0]


def forecast_ended(past: Past, version: str, node: str) -> float:
    """When who was paged was told that memory does not run out any more, monotonic."""
    forecasts = [page for page in past.of(version, node, "page") if page.labels["phase"] == "forecast"]
    ended = [page.at for page in forecasts if page.status == "resolved"]
    assert ended, past.told(version, node)
    return ended[0]


on_each = pytest.mark.parametrize("version", VERSIONS)
on_each_crash = pytest.mark.parametrize("node", POSITIVE)


@on_each
@on_each_crash
def test_people_are_paged_before_the_crash_with_its_cause(past: Past, version: str, node: str) -> None:
    page = first(past, version, node)
    lead = past.moments[node]["out_of_memory"] - page.at
    print(f"{node}, Prometheus {version}: paged {lead:.1f} s before the crash")  # noqa: T201 - the measure of it all
    assert lead >= LEAST_LEAD, past.told(version, node)
    assert page.at > past.moments[node]["jobs"], past.told(version, node)
    (alert,) = page.pages
    assert (page.status, alert.status) == ("firing", "firing")
    wanted = {
        "alertname": "OomcastGpuExhaustion", "severity": "critical", "component": "gpu", "phase": "forecast",
        "cluster": CLUSTER, "node": node, "engine": "vllm", "resource": "gpu_memory",
    }  # fmt: skip
    assert alert.labels == wanted
    says = re.fullmatch(
        rf"GPU memory of engine vllm on {node} runs out in (?:(\d+)m )?([\d.]+)s", alert.annotations["summary"]
    )
    assert says is not None, alert.annotations
    # Below 600 s / FACTOR, and no sooner than a factor of three.
    assert lead / 3 <= 60 * float(says[1] or 0) + float(says[2]) < 20, past.told(version, node)
    assert alert.annotations["runbook_url"].endswith("/OomcastGpuExhaustion.md")


@on_each
@on_each_crash
def test_it_is_one_page_that_is_resolved_when_the_engine_is_back(past: Past, version: str, node: str) -> None:
    pages = past.pages(version, node)
    told = past.told(version, node)
    assert len({page.group_key for page in pages}) == 1, told
    assert [page.status for page in pages if page.at < past.moments[node]["out_of_memory"]] == ["firing"], told
    # Not closed and opened again.
    assert [page.status for page in pages[:-1]] == ["firing"] * (len(pages) - 1), told
    assert pages[-1].status == "resolved", told
    assert pages[-1].at > past.moments[node]["back"], told
    # What was forecast of the dead engine ends with it.
    died = past.moments[node]["died"]
    assert died + KEEP - SLACK < forecast_ended(past, version, node) < died + KEEP + SLACK, told
    tickets = [page for page in past.of(version, node, "ticket") if page.labels["phase"] == "forecast"]
    assert [page for page in tickets if page.status == "firing" and page.at > died] == [], told


@on_each
@on_each_crash
def test_symptoms_are_silent_while_the_forecast_tells_why(past: Past, version: str, node: str) -> None:
    told = past.told(version, node)
    ended = forecast_ended(past, version, node)
    paged = first(past, version, node).at
    symptoms = [page for page in past.of(version, node, "page", "ticket", "log") if page.labels["phase"] == "symptom"]
    assert [page for page in symptoms if paged <= page.at < ended] == [], told
    # There were some.
    assert {name for one, name in past.fired[version] if one == node} >= {"OomcastLongRequestsFail"}, told


@on_each
@on_each_crash
def test_a_ramp_that_was_foreseen_is_nothing_for_automation(past: Past, version: str, node: str) -> None:
    assert past.of(version, node, "automation") == [], past.told(version, node)


@on_each
def test_no_node_is_told_of_with_another(past: Past, version: str) -> None:
    messages = [message for message in past.messages[version] if message.path == "/page"]
    assert {message.group_labels.get("node") for message in messages} == set(POSITIVE)
    for message in messages:
        assert message.group_labels["cluster"] == CLUSTER
        assert {page.labels["node"] for page in message.pages} == {message.group_labels["node"]}


@on_each
@pytest.mark.parametrize("node", [*HARMLESS, "page_cache"])
def test_who_is_harmless_pages_nobody(past: Past, version: str, node: str) -> None:
    if node == "page_cache":
        require("cgroup")
    assert past.moments[node], node
    told = past.told(version, node)
    assert past.of(version, node, "page", "automation") == [], told
    # Only an engine that does not answer is worth a ticket, even one that is being restarted.
    tickets = {page.labels["alertname"] for page in past.of(version, node, "ticket", "log")}
    assert tickets <= ({"OomcastEngineDown"} if node == "restart" else set()), told
    assert past.seen[version, "up"][node] == 1, told


@on_each
def test_the_harmless_looked_like_trouble(past: Past, version: str) -> None:
    def seen(name: str, node: str) -> float:
        return past.seen[version, name][node]

    assert seen("used", "load") == pytest.approx(0.9 * seen("usable", "load"), rel=0.01)
    # Of the GPU that was filled, too, there was a forecast in the end.
    assert seen("gpu forecasts", "load") == 2
    assert seen("used", "pool") == pytest.approx(0.999 * seen("usable", "pool"), rel=0.0001)
    assert 0.4 < seen("pool", "pool") < 1
    assert seen("best hits", "no_reuse") < 0.01
    assert seen("best hits", "healthy") > 0.9
    assert seen("restarts", "restart") == 1
    assert "OomcastHitRateCollapse" not in {name for node, name in past.fired[version] if node not in POSITIVE}


@on_each
@needs("cgroup")
def test_a_full_page_cache_is_in_the_cgroup_of_an_engine(past: Past, version: str) -> None:
    assert past.seen[version, "cgroup used"]["page_cache"] > 0.95 * CACHE_LIMIT
    assert past.seen[version, "cgroup of an engine"]["page_cache"] == 1
    assert past.seen[version, "cgroup forecast"]["page_cache"] == 1


@on_each
def test_the_watchdog_is_heard_all_the_time(past: Past, version: str) -> None:
    heard = [message.at for message in past.messages[version] if message.path == "/deadman"]
    assert len(heard) > 20
    # Once a minute, divided by FACTOR; three times that for a machine that is busy.
    assert max(after - before for before, after in pairwise(heard)) < 6
