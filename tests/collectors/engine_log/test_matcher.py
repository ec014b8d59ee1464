"""Finding lines: nothing is missed, an expression cannot stop the thread, a slow rule is switched off."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.engine_log.support import found, matcher
from oomcast_collectors.engine_log.cost import worst_case
from oomcast_collectors.engine_log.matcher import AFTER, BEFORE, WINDOW, Matcher
from oomcast_collectors.engine_log.numbers import parse_number
from oomcast_collectors.engine_log.rules import SHIPPED, Rule

LITERALS = [literal for rule in SHIPPED for literal in rule.contains]
LINE = st.lists(st.one_of(st.sampled_from(LITERALS), st.text(st.characters(exclude_characters="\n"), max_size=9)))


@settings(deadline=None)
@given(st.lists(LINE.map(" ".join), max_size=9))
def test_every_line_with_a_literal_is_a_candidate_in_order(lines: list[str]) -> None:
    raw = [line.encode("utf-8", "replace") for line in lines]
    block = b"".join(line + b"\n" for line in raw)
    got = [block[begin:end] for begin, end in matcher().candidates(block)]
    holding = [line for line in raw if any(literal.encode() in line for literal in LITERALS)]
    rest = iter(got)
    assert all(line in rest for line in holding)


def test_a_line_can_be_of_two_rules_and_counts_once_for_each() -> None:
    line = b"EngineDeadError: CUDA out of memory, CUDA out of memory. EngineDeadError"
    assert [hit.rule.name for hit in found(line)] == ["cuda_out_of_memory", "engine_dead"]


def test_an_expression_sees_the_neighbourhood_of_each_literal() -> None:
    rule = Rule("own", ("mark",), regex="left.*right")
    assert found(b"left" + b"." * (BEFORE - 4) + b"mark right", (rule,))
    assert not found(b"left" + b"." * (BEFORE - 3) + b"mark right", (rule,))
    assert found(b"left mark" + b"." * (AFTER - 9) + b"right", (rule,))
    assert not found(b"left mark" + b"." * (AFTER - 8) + b"right", (rule,))


def test_a_rule_that_takes_too_long_is_not_used_again() -> None:
    slow: list[str] = []
    times = iter([0.0, 0.01, 1.0, 1.06])
    rule = Rule("own", ("mark",))
    made = Matcher((rule,), lambda rule, seconds: slow.append(f"{rule.name} {seconds:.2f}"), clock=lambda: next(times))
    assert len(made.match("mark")) == 1
    assert slow == []
    assert len(made.match("mark")) == 1
    assert slow == ["own 0.06"]
    assert made.match("mark") == []


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("", 1),
        ("abc[0-9]", 1),
        (r"\d{1,20}", 20),
        (r"(?:a|bc)", 2),
        (r"(?:a|bc){3}", 8),
        (r".*", WINDOW + 1),
        (r"(?i:x{2,4})(?=y{1,2})(?<!z)", 6),
        (r"(a)?(?(1)b{1,3}|c)", 8),
        (r"(?>a{1,3})b{0,4}+", 15),
    ],
)
def test_ways(pattern: str, most: int) -> None:
    assert worst_case(pattern, WINDOW) == WINDOW * most


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|aa)+$", "(?:a*)*b", ".*.*", r"(\w+\s?)*:", "(?:a?){30}a{30}", "(x+x+)+y"]
)
def test_what_could_take_for_ever_is_seen(pattern: str) -> None:
    assert worst_case(pattern, WINDOW) > 1e9


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "*", r"\1", "(" * 5000 + ")" * 5000, "(?P<a"])
def test_what_is_no_expression_says_so(pattern: str) -> None:
    with pytest.raises(ValueError, match="no regular expression: "):
        worst_case(pattern, WINDOW)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "a?", "a{1,3}", "(?:a|ab)", "(?:a|b?){1,2}", "[ab]{0,4}"]), max_size=8))
def test_the_bound_bounds(parts: list[str]) -> None:
    pattern = "".join(parts) + "c"
    ways = worst_case(pattern, 60)
    if ways > 1e6:
        return
    compiled = re.compile(pattern)
    began = time.thread_time()
    assert compiled.search("a" * 60) is None
    # A step takes some tens of nanoseconds; ten times that is for the machine.
    assert time.thread_time() - began < 0.02 + ways * len(parts) * 3e-7


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("548,864", 548864),
        ("0.1514", 0.1514),
        ("-1", -1),
        ("79.11 GiB", round(79.11 * 2**30)),
        ("31 bytes", 31),
        ("2 GB", 2_000_000_000),
        ("1.5 KiB", 1536),
        ("8192.00 MiB", 8 << 30),
        *((text, None) for text in ("", "GiB", "1 XiB", "nan", "inf", "1e9", "1.2.3", "secret", "9" * 60, "1 iB", "٣")),
    ],
)
def test_parse_number(text: str, number: float | None) -> None:
    assert parse_number(text) == number
