"""Looks one by one, without the thread: which files come and go."""

import logging
from pathlib import Path

from fakes import FakeClock
from oomcast.contract import Event
from oomcast_collectors.engine_log.findings import Findings
from oomcast_collectors.engine_log.rules import SHIPPED
from oomcast_collectors.engine_log.sources import Sources
from oomcast_collectors.engine_log.watch import Watch


def test_what_a_container_wrote_last_is_read_when_it_has_started_again(tmp_path: Path) -> None:
    events: list[Event] = []
    clock, log = FakeClock(), logging.getLogger("engine_log")
    findings = Findings(SHIPPED, clock, log, events.append)
    watch = Watch(Sources((), tmp_path, ("vllm",), log), (), findings, clock, log)
    directory = tmp_path / "ml_chat_1" / "vllm"
    directory.mkdir(parents=True)

    def write(name: str, text: str) -> None:
        with (directory / name).open("a") as file:
            file.write(f"2023-11-14T22:13:20Z stderr F {text}\n")

    def found(seconds: float) -> list[str]:
        clock.advance(seconds)
        events.clear()
        watch.look()
        return sorted(f"{event.fields['file']} {event.fields['rule']}" for event in events)

    write("0.log", "EngineDeadError")
    assert found(0) == []
    write("0.log", "No free slots")
    write("1.log", "Model is overloaded")
    assert found(2.1) == ["0.log no_free_slots", "1.log overloaded"]
    write("0.log", "EngineDeadError")
    assert found(0.25) == ["0.log engine_dead"]
    assert found(11) == []
    assert watch._gone == []
    watch._close()
