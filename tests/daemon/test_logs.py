import io
import json
import logging
import math
import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import FakeClock
from oomcast.logs import MAX_LINE, Format, JsonLine, LineHandler, Logfmt, OnChange, configure

MOMENT = 1767323045.678  # 2026-01-02T03:04:05.678Z


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging is the process's: what `configure` changes is put back."""
    root = logging.getLogger()
    names = ("apscheduler", "asyncio", "httpcore", "httpx", "uvicorn", "uvicorn.access")
    levels = {name: logging.getLogger(name).level for name in names}
    level = root.level
    yield
    logging.captureWarnings(False)
    root.setLevel(level)
    for handler in [handler for handler in root.handlers if isinstance(handler, LineHandler)]:
        root.removeHandler(handler)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def record(message: Any, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("oomcast.cgroup").makeRecord("oomcast.cgroup", logging.INFO, "f", 1, message, args, None)
    vars(made).update(extra)
    made.created = MOMENT
    return made


def raised() -> Any:
    try:
        raise ValueError('bad "value"\nts=2026-01-01T00:00:00.000Z level=info msg=forged')
    except ValueError as error:
        return type(error), error, error.__traceback__


HEAD = "ts=2026-01-02T03:04:05.678Z level=info logger=oomcast.cgroup "


def test_logfmt_line() -> None:
    made = record("read %d groups", 7, path="/a b", count=3, ratio=0.5, ok=True, none=None, empty="", plain="a/b.c")
    assert Logfmt().format(made) == (
        HEAD + 'msg="read 7 groups" path="/a b" count=3 ratio=0.5 ok=true none=null empty="" plain=a/b.c'
    )


def test_json_line() -> None:
    made = record("read %d groups", 7, path="/a b", count=3, ok=True, none=None, inf=math.inf)
    assert json.loads(JsonLine().format(made)) == {
        "ts": "2026-01-02T03:04:05.678Z",
        "level": "info",
        "logger": "oomcast.cgroup",
        "msg": "read 7 groups",
        "path": "/a b",
        "count": 3,
        "ok": True,
        "none": None,
        "inf": "inf",
    }


@pytest.mark.parametrize(
    ("hostile", "written"),
    [
        ("a\nts=x level=error", r'"a\nts=x level=error"'),
        ('a" level="error', r'"a\" level=\"error"'),
        ("a\\", r'"a\\"'),
        ("\x1b[2J", r'"\u001b[2J"'),
        ("a\x85b\u2028c\u202ed", r'"a\u0085b\u2028c\u202ed"'),
        ("\udc80", r'"\udc80"'),
        ("a=b", '"a=b"'),
        ("schön", '"schön"'),
    ],
)
def test_no_value_can_forge_a_line_or_a_field(hostile: str, written: str) -> None:
    assert Logfmt().format(record("m", value=hostile)) == HEAD + f"msg=m value={written}"
    assert Logfmt().format(record(hostile)) == HEAD + f"msg={written}"
    assert json.loads(JsonLine().format(record(hostile, value=hostile)))["value"] == hostile


@settings(deadline=None)
@given(st.text(), st.text(min_size=1))
def test_any_text_is_one_printable_line(text: str, key: str) -> None:
    for formatter in (Logfmt(), JsonLine()):
        line = formatter.format(record("%s", text, **{f"x{key}": text}))
        assert line.isprintable()
        assert len(line.splitlines()) == 1


def test_a_traceback_is_one_field() -> None:
    made = record("failed")
    made.exc_info = raised()
    line = Logfmt().format(made)
    assert "\n" not in line
    assert r'exception="Traceback (most recent call last):\n  File ' in line
    assert line.endswith(r'ValueError: bad \"value\"\nts=2026-01-01T00:00:00.000Z level=info msg=forged"')
    assert json.loads(JsonLine().format(made))["exception"].endswith("msg=forged")


def test_a_field_cannot_take_the_name_of_ours() -> None:
    assert Logfmt().format(record("m", **{"level": "x", "ts": "y", "a b=c": "z"})) == (
        HEAD + "msg=m level_=x ts_=y a_b_c=z"
    )


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_what_does_not_format_is_still_logged() -> None:
    assert Logfmt().format(record("%d groups", "x")) == HEAD + 'msg="%d groups (arguments do not format: TypeError)"'
    assert Logfmt().format(record("m", value=Unprintable())) == (
        HEAD + 'msg=m value="(Unprintable does not format: RuntimeError)"'
    )
    assert "(Unprintable does not format: RuntimeError)" in Logfmt().format(record(Unprintable()))


@pytest.mark.parametrize("formatter", [Logfmt(), JsonLine()])
@pytest.mark.parametrize("character", ["a", "\n", "\U0001f600", "\U000e0001"])
def test_a_line_is_bounded(formatter: logging.Formatter, character: str) -> None:
    huge = character * 1_000_000
    made = record("%s", huge, **{f"k{number}": huge for number in range(20)})
    made.exc_info = raised()
    line = formatter.format(made)
    assert len(line.encode()) < MAX_LINE + 100
    assert "truncated" in line
    assert "ValueError" in line
    if isinstance(formatter, JsonLine):
        assert json.loads(line)["truncated"] is True


def test_of_a_long_traceback_the_end_is_kept() -> None:
    made = record("m")
    made.exc_text = "first\n" + "x" * 100_000 + "\nValueError: last"
    text = json.loads(JsonLine().format(made))["exception"]
    assert text.startswith("…x")
    assert text.endswith("\nValueError: last")


@pytest.mark.parametrize("line_format", ["logfmt", "json"])
def test_configure_replaces_itself_and_quiets_libraries(line_format: Format) -> None:
    first, second = io.StringIO(), io.StringIO()
    configure("info", "logfmt", first)
    configure("info", line_format, second)
    logging.getLogger("oomcast.x").info("one")
    logging.getLogger("oomcast.x").debug("two")
    for name in ("uvicorn.access", "uvicorn.error", "httpx", "apscheduler.executors.default"):
        logging.getLogger(name).info("three")
    logging.getLogger("apscheduler.scheduler").warning("maximum number of running instances reached")
    logging.getLogger("apscheduler.scheduler").error("four")
    assert first.getvalue() == ""
    lines = second.getvalue().splitlines()
    assert len(lines) == 2
    assert "one" in lines[0]
    assert "four" in lines[1]


def test_a_higher_level_holds_for_libraries_too() -> None:
    stream = io.StringIO()
    configure("error", "logfmt", stream)
    logging.getLogger("uvicorn.error").warning("one")
    assert stream.getvalue() == ""


def test_warnings_become_lines() -> None:
    stream = io.StringIO()
    configure("info", "logfmt", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    (line,) = stream.getvalue().splitlines()
    assert "level=warning logger=py.warnings" in line


def test_a_log_nobody_reads_costs_a_count_only(capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as stream:
        handler = configure("info", "logfmt", stream)
        logging.getLogger("oomcast.x").error("one")
        logging.getLogger("oomcast.x").error("two")
        assert handler.lost == 2
        logging.getLogger().removeHandler(handler)
        with pytest.raises(BrokenPipeError):
            stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    assert capfd.readouterr().err == ""


def test_a_state_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    changes = OnChange(logging.getLogger("oomcast.run"))
    assert changes.report("gpu", "failure", logging.ERROR, "100% broken", {"collector": "gpu"})
    assert not changes.report("gpu", "failure", logging.ERROR, "100% broken")
    assert changes.report("host", "failure", logging.ERROR, "host failed")
    assert changes.report("gpu", "success", logging.INFO, "works again")
    assert changes.report("gpu", "failure", logging.ERROR, "broken again")
    changes.forget("host")
    assert changes.report("host", "failure", logging.ERROR, "host failed")
    assert [(made.levelname, made.getMessage()) for made in caplog.records] == [
        ("ERROR", "100% broken"),
        ("ERROR", "host failed"),
        ("INFO", "works again"),
        ("ERROR", "broken again"),
        ("ERROR", "host failed"),
    ]
    assert vars(caplog.records[0])["collector"] == "gpu"


def test_names_that_others_choose_cannot_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    changes = OnChange(logging.getLogger("oomcast.run"), max_keys=3, idle=60, clock=clock)
    for name in ("a", "b", "c"):
        assert changes.report(name, 1, logging.ERROR, name)
    for number in range(1000):
        assert not changes.report(number, 1, logging.ERROR, str(number))
    assert changes.report("b", 2, logging.ERROR, "b2")  # those that are known go on
    assert [made.getMessage() for made in caplog.records] == [
        *("a", "b", "c"),
        "changes of more than 3 things are not logged",
        "b2",
    ]
    clock.advance(60)
    assert changes.report("d", 1, logging.ERROR, "d")  # in the place of "a", which nobody reported for a minute
    assert changes.report("a", 1, logging.ERROR, "a")


def test_one_change_seen_by_many_threads_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    changes = OnChange(logging.getLogger("oomcast.run"))
    told: list[bool] = []
    threads = [
        threading.Thread(target=lambda: told.append(changes.report("k", 1, logging.ERROR, "m"))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == [False] * 19 + [True]
    assert len(caplog.records) == 1
