"""What every test has: the mark `needs`, the fixture `golden`, and a closing list of what this host could not do."""

import difflib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from requires import require, required

MAX_DIFF_LINES = 200


@dataclass(frozen=True)
class Golden:
    folder: Path
    update: bool

    def __call__(self, name: str, text: str) -> None:
        expected = self._expected(name)
        if text == expected:
            return
        if self.update:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(text.encode())
            return
        pytest.fail(_difference(f"tests/golden/{name}", expected, text), pytrace=False)

    def becomes(self, name: str, read: Callable[[], str], patience: float = 10.0) -> None:
        """The same of what a running program says, whose parts come one after another: within `patience` seconds.

        With --update-golden the whole time is waited, as nothing else tells that all parts are there.
        """
        deadline = time.monotonic() + patience
        while (text := read()) != self._expected(name) and time.monotonic() < deadline:
            time.sleep(0.2)
        self(name, text)

    def _expected(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_bytes().decode() if path.exists() else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden, to be reviewed")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(name, ...): runs only where the machine has these, see requires.py")
    config.addinivalue_line("markers", "alone: measures, so that nothing else may run meanwhile")
    try:
        required(os.environ)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            require(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(_unmet(terminalreporter.stats.get("skipped", [])))
    if reasons:
        terminalreporter.section("what this host could not do")
    for reason, tests in sorted(reasons.items()):
        terminalreporter.write_line(f"{reason} ({tests} {'test' if tests == 1 else 'tests'} skipped)")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """golden(name, text) fails, with a diff, unless tests/golden/<name> holds exactly `text`.

    With --update-golden it writes the file instead: the diff to be read is then git's.
    """
    return Golden(Path(__file__).parent / "golden", bool(request.config.getoption("--update-golden")))


def _difference(path: str, expected: str | None, text: str) -> str:
    if expected is None:
        return f"{path} does not exist: pytest --update-golden writes it"
    diff = list(difflib.unified_diff(_lines(expected), _lines(text), path, "what the test got", lineterm=""))
    if len(diff) > MAX_DIFF_LINES:
        diff[MAX_DIFF_LINES:] = [f"and {len(diff) - MAX_DIFF_LINES} more lines of difference"]
    return "\n".join([f"{path} differs: if that is meant, pytest --update-golden rewrites it", *diff])


def _lines(text: str) -> list[str]:
    # A difference in the last newline alone would otherwise show as two equal lines.
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else [*lines[:-1], lines[-1] + "  (no newline at the end)"]


def _unmet(skipped: Iterable[pytest.TestReport]) -> Iterable[str]:
    for report in skipped:
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if reason.startswith("needs "):
                yield reason.removeprefix("needs ")
