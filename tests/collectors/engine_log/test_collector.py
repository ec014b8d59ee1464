"""The whole collector over files that are written while it runs."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.engine_log.support import FIXTURES, OOM, Bench, values
from oomcast.contract import NotPresent
from oomcast_collectors.engine_log import SPEC, EngineLogError, metrics
from oomcast_collectors.engine_log import watch as watching

Eventually = Callable[[Callable[[], bool]], None]


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def files(path: Path, engine: str = "chat") -> list[dict[str, Any]]:
    return [{"engine": engine, "paths": [str(path)]}]


def started(bench: Bench, eventually: Eventually, **settings: Any) -> Any:
    """A collector that has had its first look."""
    collector = bench.collector(**settings)
    collector.start()
    watch = collector._watch
    assert watch is not None
    first = watch.looked
    eventually(lambda: watch.looked != first)
    return collector


def test_nothing_to_follow_is_not_present(bench: Bench) -> None:
    collector = bench.collector()
    collector.start()
    with pytest.raises(NotPresent, match="the settings name no logs to follow"):
        collector.collect()
    assert not [thread for thread in threading.enumerate() if thread.name == "engine-log"]


def test_counters_begin_at_zero_for_each_rule_and_engine(bench: Bench, tmp_path: Path) -> None:
    got = values(bench.collector(files=files(tmp_path / "absent.log")))
    assert got.pop("rules_disabled") == 0
    assert set(got.values()) == {0}
    assert {'events_total{engine="chat",rule="engine_dead"}', 'lines_total{engine="chat"}'} <= got.keys()
    assert not [name for name in got if "kv_cache_size" in name]
    assert {name.partition("{")[0] for name in got} == {
        metric.name.removeprefix("oomcast_log_") for metric in metrics.METRICS if metric.labels
    }


def test_a_line_becomes_a_count_and_an_event_without_its_text(
    bench: Bench, tmp_path: Path, eventually: Eventually
) -> None:
    path = tmp_path / "dir" / "vllm.log"
    write(path, f"{OOM}\n")
    collector = started(bench, eventually, files=files(path))
    began = time.time()  # noqa: TID251 - the clock of the machine, as the file has it
    write(path, f"secret prompt {OOM} secret answer\nGPU KV cache size: 4,096 tokens\n")
    event = bench.event()
    assert (event.kind, event.summary) == ("engine_log", "chat: cuda_out_of_memory: CUDA out of memory")
    assert event.fields == {
        "rule": "cuda_out_of_memory",
        "engine": "chat",
        "severity": "critical",
        "literal": "CUDA out of memory",
        "file": "vllm.log",
        "tried_bytes": 2 << 30,
    }
    assert abs(event.time - began) < 5
    assert abs(event.time - began - (event.monotonic - time.monotonic())) < 2
    information = bench.event()
    assert (information.fields["rule"], information.fields["capacity_tokens"]) == ("kv_cache_size", 4096)
    got = values(collector)
    assert got['events_total{engine="chat",rule="cuda_out_of_memory"}'] == 1
    assert sum(value for name, value in got.items() if name.startswith("events_total")) == 1
    assert got['lines_total{engine="chat"}'] == 2


def test_containers_with_their_own_time_and_a_restart(bench: Bench, tmp_path: Path, eventually: Eventually) -> None:
    directory = tmp_path / "pods" / "ml_chat-0_0f3a" / "vllm"
    write(directory / "0.log", f"2026-01-01T00:00:00Z stderr F {OOM}\n")
    collector = started(bench, eventually, containers=True)
    write(
        directory / "0.log", "2026-01-01T00:00:00.25Z stderr P CUDA out\n2026-01-01T00:00:00.5Z stderr F  of memory\n"
    )
    event = bench.event()
    assert event.time == 1767225600.5
    places = {"file": "0.log", "namespace": "ml", "pod": "chat-0", "container": "vllm"}
    assert {key: event.fields[key] for key in places} == places
    write(directory / "0.log", '{"log":"EngineDeadError\\n","stream":"stderr","time":"2026-01-01T00:00:01Z"}\n')
    assert (event := bench.event()).time == 1767225601
    write(directory / "1.log", "2026-01-01T00:00:02Z stdout F Model is overloaded\n")
    assert (event := bench.event()).fields["rule"] == "overloaded"
    assert event.fields["file"] == "1.log"
    assert values(collector)['events_total{engine="vllm",rule="overloaded"}'] == 1


def test_a_stamp_of_the_future_is_not_believed(bench: Bench, tmp_path: Path, eventually: Eventually) -> None:
    path = tmp_path / "a.log"
    started(bench, eventually, files=files(path))
    write(path, f"2999-01-01T00:00:00Z stderr F {OOM}\n")
    assert abs(bench.event().time - time.time()) < 5  # noqa: TID251 - as above


def test_a_flood_in_one_log_keeps_no_other_waiting(bench: Bench, tmp_path: Path, eventually: Eventually) -> None:
    flood, quiet = tmp_path / "flood.log", tmp_path / "quiet.log"
    collector = started(bench, eventually, files=[*files(flood, "flood"), *files(quiet, "quiet")])
    write(flood, "nothing of interest, again and again and again\n" * 300_000)
    write(quiet, f"{OOM}\n")
    assert bench.event().fields["engine"] == "quiet"
    eventually(lambda: values(collector)['lines_total{engine="flood"}'] == 300_000)


def test_the_worst_expression_that_is_accepted_is_switched_off_at_its_first_line(
    bench: Bench, tmp_path: Path, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.log"
    rules = [{"name": "own", "contains": ["mark"], "regex": ".{0,100}.{0,100}[xy]"}]
    collector = started(bench, eventually, files=files(path), rules=rules)
    write(path, "mark" + "." * 20_000 + f"\nmark {OOM} x\n")
    assert bench.event().fields["rule"] == "cuda_out_of_memory"
    got = values(collector)
    assert (got["rules_disabled"], got['events_total{engine="chat",rule="own"}']) == (1, 0)
    assert [message for message in caplog.messages if "rule own is not used any more: it took 0." in message]


@pytest.mark.parametrize("log", sorted(FIXTURES.glob("*-*.log")), ids=lambda path: path.name)
def test_real_logs_as_they_are_written(bench: Bench, tmp_path: Path, eventually: Eventually, log: Path) -> None:
    path = tmp_path / "a.log"
    collector = started(bench, eventually, files=files(path))
    write(path, log.read_bytes())
    lines = log.read_bytes().count(b"\n")
    eventually(lambda: values(collector)['lines_total{engine="chat"}'] == lines)
    eventually(lambda: sum(value for name, value in values(collector).items() if name.startswith("events_total")) > 0)


def test_of_many_engines_the_last_count_together(bench: Bench, tmp_path: Path) -> None:
    entries = [{"engine": f"e{n}", "paths": [str(tmp_path / f"{n}.log")]} for n in range(metrics.MAX_ENGINES + 5)]
    got = values(bench.collector(files=entries))
    assert len([name for name in got if name.startswith("lines_total")]) == metrics.MAX_ENGINES + 1
    assert 'lines_total{engine="other"}' in got


def test_a_thread_that_dies_is_told_once_and_begins_anew(
    bench: Bench, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    collector = started(bench, eventually, files=files(path))
    watch = collector._watch
    with monkeypatch.context() as patched:
        patched.setattr(watching.Watch, "look", lambda self: 1 // 0)
        eventually(lambda: watch.failure is not None)
    with pytest.raises(EngineLogError, match="a look at the logs failed: integer"):
        collector.collect()
    first = collector._watch.looked
    eventually(lambda: collector._watch.looked != first)
    write(path, f"{OOM}\n")
    eventually(lambda: values(collector)['lines_total{engine="chat"}'] == 1)


def test_a_thread_that_is_stuck_is_a_failure_and_keeps_nobody(
    bench: Bench, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    collector = started(bench, eventually, files=files(tmp_path / "a.log"))
    monkeypatch.setattr(watching.Watch, "look", lambda self: let_go.wait(20))
    watch = collector._watch
    watch.looked -= 31
    time.sleep(0.3)
    watch.looked = time.monotonic() - 31
    with pytest.raises(EngineLogError, match="no look at the logs has ended for 31 s"):
        collector.collect()
    began = time.monotonic()
    collector.stop(began + 0.3)
    assert time.monotonic() - began < 1
    let_go.set()


def test_stop_is_prompt_and_leaves_nothing_open(bench: Bench, tmp_path: Path, eventually: Eventually) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    others = threading.enumerate()
    path = tmp_path / "a.log"
    write(path, "x\n")
    collector = started(bench, eventually, files=files(path))
    began = time.monotonic()
    collector.stop(began + 2)
    assert time.monotonic() - began < 1
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert not [one for one in threading.enumerate() if one.name == "engine-log" and one not in others]
    with pytest.raises(NotPresent):
        collector.collect()


def test_the_spec_has_a_row_for_every_metric() -> None:
    assert SPEC.name == "engine_log"
    assert {metric.name for metric in SPEC.metrics} >= {"oomcast_log_events_total", "oomcast_log_rules_disabled"}
