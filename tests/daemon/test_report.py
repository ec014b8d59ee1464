import json

from oomcast.report import Counters, Difference, as_json, as_text, difference

BEFORE = Counters(
    1_700_000_000.0, 50.0, {"oomcast_a_total": 5, "oomcast_b_total": 1, "oomcast_c_total": 7, "oomcast_gone_total": 3}
)
AFTER = Counters(
    1_700_000_010.5, 60.0, {"oomcast_a_total": 25, "oomcast_b_total": 1, "oomcast_c_total": 2, "oomcast_new_total": 4}
)


def between(match: str = "", *, everything: bool = False) -> Difference:
    return difference(BEFORE, AFTER, match, everything=everything)


def test_what_rose_and_what_cannot_be_subtracted() -> None:
    found = between()
    assert found.rose == [("oomcast_a_total", 5, 25)]
    assert found.appeared == [("oomcast_new_total", 4)]
    assert found.gone == [("oomcast_gone_total", 3)]
    assert found.began_anew == [("oomcast_c_total", 7, 2)]
    # Of the monotonic clock: the wall clock was set meanwhile.
    assert found.seconds == 10


def test_only_what_matches_and_everything() -> None:
    assert between("_b_").rose == []
    assert between("_b_", everything=True).rose == [("oomcast_b_total", 1, 1)]
    assert between("nothing") == difference(BEFORE, AFTER, "nothing", everything=True)


def test_what_came_or_went_at_0_is_no_news() -> None:
    before, after = Counters(0, 0, {"went": 0}), Counters(1, 1, {"came": 0})
    found = difference(before, after, "", everything=False)
    assert (found.appeared, found.gone) == ([], [])
    found = difference(before, after, "", everything=True)
    assert (found.appeared, found.gone) == ([("came", 0)], [("went", 0)])


def test_most_comes_first_then_the_name() -> None:
    before = Counters(0, 0, dict.fromkeys("abcd", 0))
    after = Counters(1, 1, {"d": 2, "c": 9, "b": 2, "a": 1})
    assert [row[0] for row in difference(before, after, "", everything=False).rose] == ["c", "b", "d", "a"]


def test_for_people() -> None:
    assert as_text(between()).split("\n") == [
        "2023-11-14T22:13:20.000000Z to 2023-11-14T22:13:30.500000Z, 10.0 s",
        "          RISE   PER SECOND  COUNTER",
        "            20            2  oomcast_a_total",
        "      appeared            4  oomcast_new_total",
        "          gone            3  oomcast_gone_total",
        "    began anew            2  oomcast_c_total",
    ]
    assert as_text(between("_b_")).split("\n")[1:] == ["no counter rose"]


def test_for_programs() -> None:
    assert json.loads(as_json(between())) == {
        "from": "2023-11-14T22:13:20.000000Z",
        "to": "2023-11-14T22:13:30.500000Z",
        "seconds": 10.0,
        "counters": [{"series": "oomcast_a_total", "from": 5, "to": 25, "rise": 20}],
        "appeared": [{"series": "oomcast_new_total", "to": 4}],
        "gone": [{"series": "oomcast_gone_total", "from": 3}],
        "began_anew": [{"series": "oomcast_c_total", "from": 7, "to": 2}],
    }


def test_no_time_between_is_no_rate() -> None:
    same = Counters(1_700_000_000.0, 50.0, {"oomcast_a_total": 6})
    assert as_text(difference(BEFORE, same, "_a_", everything=False)).split("\n")[-1] == (
        "             1            -  oomcast_a_total"
    )
