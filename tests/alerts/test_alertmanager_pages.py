"""Who is told what: a real Alertmanager with the shipped routes and inhibition, faster and with one webhook for all.

All scenes are played at once: what fires at first, and what is over later.
"""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import yaml

from alerts.alertmanagers import faster, shipped
from alerts.scenes import FIRING, OVER, Labels
from e2e.prometheuses import Prometheus, found
from e2e.stack import Message, alertmanager, webhook
from requires import needs

pytestmark = needs("prometheus")

FACTOR = 50.0
"""So pages wait 0.2 s and tickets 1.2 s, and what changes is told after 1.2 s, or 6 s of tickets."""


class Scenes(NamedTuple):
    """before, after: the messages until the alerts of OVER were over, and since."""

    before: Sequence[Message]
    after: Sequence[Message]


@pytest.fixture(scope="module", params=found(), ids=[one.version for one in found()])
def scenes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    which: Prometheus = request.param
    with webhook() as (hook, messages):
        config = shipped()
        faster(config["route"], FACTOR)
        for receiver in config["receivers"]:
            for each in receiver.get("webhook_configs", ()):
                each["url"] = each["url"].replace("http://127.0.0.1:9095/", hook)
        with alertmanager(tmp_path_factory.mktemp("scenes"), yaml.safe_dump(config), which) as url:
            _post(url, FIRING, over=False)
            time.sleep(4)
            before = tuple(messages)
            _post(url, OVER, over=True)
            time.sleep(4)
            after = tuple(messages)[len(before) :]
    return Scenes(before, after)


def test_ten_alerts_of_a_node_are_one_page(scenes: Scenes) -> None:
    (message,) = _of(scenes.before, "ten")
    assert (message.path, message.group_labels) == ("/page", {"cluster": "ten", "node": "a"})
    assert _told([message]) == {f"/page a Fact{number} critical": 1 for number in range(10)}


def test_two_nodes_are_two_pages(scenes: Scenes) -> None:
    messages = _of(scenes.before, "two")
    assert sorted(message.group_labels["node"] for message in messages) == ["a", "b"]
    assert _told(messages) == {"/page a EngineDown critical x": 1, "/page b EngineDown critical x": 1}


def test_the_nodes_of_one_engine_are_one_page(scenes: Scenes) -> None:
    (message,) = _of(scenes.before, "spanning")
    assert (message.path, message.group_labels) == ("/page", {"cluster": "spanning", "engine_group": "g"})
    assert [alert["labels"]["node"] for alert in message.alerts] == ["a", "b", "c"]


def test_a_forecast_silences_symptoms_of_its_node_and_no_facts(scenes: Scenes) -> None:
    assert _told(_of(scenes.before, "known")) == {
        "/page a GpuExhaustion critical x": 1,
        "/page a EngineKilled critical o": 1,
        "/ticket a OomKill warning o": 1,
        "/ticket a SloRisk warning x": 1,
        "/page b HitRateCollapse critical x": 1,
        "/ticket b QueuePileUp warning x": 1,
    }


def test_a_forecast_that_is_only_a_warning_silences_no_symptom(scenes: Scenes) -> None:
    assert _told(_of(scenes.before, "only-warned")) == {
        "/ticket a GpuExhaustion warning x": 1,
        "/page a HitRateCollapse critical x": 1,
    }


def test_automation_comes_first_and_holds_back_the_page_about_the_same_memory(scenes: Scenes) -> None:
    assert _told(_of(scenes.before, "sudden")) == {
        "/automation a ExhaustionSudden warning /x": 1,
        "/automation b ExhaustionSudden warning 0": 1,
        "/automation c ExhaustionSudden warning /x": 1,
        "/automation d ExhaustionSudden warning 0": 1,
        "/page d GpuMemoryFull critical": 1,
        "/page b HostExhaustion critical": 1,
        "/page c CgroupExhaustion critical /y": 1,
        "/page c HostExhaustion critical": 1,
        "/page c EngineKilled critical o": 1,
    }


def test_people_are_paged_when_automation_has_ended_and_memory_still_runs_out(scenes: Scenes) -> None:
    assert _told(_of(scenes.after, "sudden"), "firing", "/page") == {
        "/page a CgroupExhaustion critical /x": 1,
        "/page b GpuExhaustion critical x": 1,
        "/page b HostExhaustion critical": 1,
    }
    assert _told(_of(scenes.after, "sudden"), "resolved") == {
        "/automation a ExhaustionSudden warning /x": 1,
        "/automation b ExhaustionSudden warning 0": 1,
        "/automation c ExhaustionSudden warning /x": 1,
        "/automation d ExhaustionSudden warning 0": 1,
    }


def test_an_alert_silences_the_less_severe_of_the_same_object_only(scenes: Scenes) -> None:
    assert _told(_of(scenes.before, "objects"), path="/ticket") == {
        "/ticket a CgroupExhaustion warning /y": 1,
        "/ticket b CgroupExhaustion warning /x": 1,
        "/ticket a EngineDown warning y": 1,
        "/ticket a Xid warning 48": 1,
        "/ticket c SloBurn warning x ttft 131072": 1,
    }


def test_alerts_without_a_node_silence_nothing(scenes: Scenes) -> None:
    assert _told(_of(scenes.before, "no-node")) == {
        "/page GpuExhaustion critical x": 1,
        "/page Down critical": 1,
        "/ticket GpuExhaustion warning x": 1,
        "/ticket QueuePileUp warning x": 1,
        "/ticket TargetUnlabelled warning": 1,
    }


def test_a_daemon_that_is_down_silences_what_it_said_of_itself(scenes: Scenes) -> None:
    assert _told(_of(scenes.before, "down")) == {
        "/page a Down critical": 1,
        "/ticket a OomKill warning o": 1,
        "/ticket b CollectorDown warning": 1,
    }


def test_no_daemon_at_all_silences_that_nodes_have_none(scenes: Scenes) -> None:
    assert _told(_of(scenes.before, "absent")) == {"/page Absent critical": 1}
    assert _told(_of(scenes.before, "uncovered")) == {"/ticket a NodeUncovered warning": 1}


def test_what_is_merely_worth_knowing_is_told_to_nobody(scenes: Scenes) -> None:
    assert _told(_of([*scenes.before, *scenes.after], "noted")) == {}


def test_what_is_over_is_told_once(scenes: Scenes) -> None:
    (fired,) = _of(scenes.before, "over")
    (ended,) = _of(scenes.after, "over")
    assert (fired.path, fired.status, ended.path, ended.status) == ("/page", "firing", "/page", "resolved")
    assert ended.group_key == fired.group_key
    assert _told([ended], "resolved") == {"/page a EngineDown critical x": 1, "/page a EngineDown critical y": 1}


def test_the_watchdog_is_heard_of_each_minute_until_it_is_not(scenes: Scenes) -> None:
    heard = _of(scenes.before, "watchdog")
    assert {message.path for message in heard} == {"/deadman"}
    # The scene lasts 200 s of those that are shipped: at 0, 60, 120 and 180 s, or a little later on a busy machine.
    assert 3 <= len(heard) <= 4
    assert _of(scenes.after, "watchdog") == []


def _of(messages: Sequence[Message], cluster: str) -> list[Message]:
    return [message for message in messages if message.alerts[0]["labels"]["cluster"] == cluster]


def _told(messages: Sequence[Message], status: str = "firing", path: str = "/") -> Counter[str]:
    """How often each alert was told: where to, its node, name and severity, and what of the node it is about."""
    return Counter(
        _line(message.path, alert["labels"])
        for message in messages
        for alert in message.alerts
        if alert["status"] == status and message.path.startswith(path)
    )


def _line(path: str, labels: Labels) -> str:
    about = [labels.get(label) for label in ("cgroup", "gpu", "engine", "owner", "xid", "objective", "up_to")]
    words = [path, labels.get("node"), labels["alertname"].removeprefix("Oomcast"), labels["severity"], *about]
    return " ".join(word for word in words if word)


def _post(url: str, scenes: dict[str, list[Labels]], *, over: bool) -> None:
    now = datetime.now(UTC)
    ends = now if over else now + timedelta(hours=1)
    alerts: list[dict[str, Any]] = [
        {"labels": {"cluster": cluster, **labels}, "endsAt": ends.isoformat(), "annotations": {"summary": "it is so"}}
        for cluster, every in scenes.items()
        for labels in every
    ]
    body = json.dumps(alerts).encode()
    request = urllib.request.Request(f"{url}/api/v2/alerts", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()
