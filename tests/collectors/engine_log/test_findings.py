"""Counts and events of what was found: every line counts, few are told."""

import logging

from collectors.engine_log.support import OOM
from fakes import FakeClock
from oomcast.contract import Event
from oomcast_collectors.engine_log.findings import Findings, Source
from oomcast_collectors.engine_log.lines import unwrap
from oomcast_collectors.engine_log.rules import SHIPPED, Rule

RULES = tuple(Rule(f"r{n}", (f"mark{n:02}",)) for n in range(30))


def test_a_storm_is_counted_and_hides_no_other_rule() -> None:
    events: list[Event] = []
    clock = FakeClock()
    findings = Findings(SHIPPED, clock, logging.getLogger("engine_log"), events.append)
    engine, tally = findings.engine("chat")
    storm = b"attn_grad_overflow: inf detected in softmax denominator\n" * 5000 + OOM.encode() + b"\n"
    for _ in range(2):
        findings.scan(storm, clock.wall, Source(engine, tally, {}), unwrap)
    assert (tally.events["attn_grad_overflow"], tally.events["cuda_out_of_memory"]) == (10_000, 2)
    told = [event.fields["rule"] for event in events]
    assert told == ["attn_grad_overflow"] * 5 + ["cuda_out_of_memory"] * 2
    clock.advance(1)
    findings.scan(storm, clock.wall, Source(engine, tally, {}), unwrap)
    assert len(events) == 13


def test_at_most_twenty_events_a_second() -> None:
    events: list[Event] = []
    clock = FakeClock()
    findings = Findings(RULES, clock, logging.getLogger("engine_log"), events.append)
    engine, tally = findings.engine("chat")
    block = b"".join(b"mark%02d\n" % n for n in range(30))
    findings.scan(block, clock.wall, Source(engine, tally, {}), unwrap)
    assert (len(events), sum(tally.events.values())) == (20, 30)
