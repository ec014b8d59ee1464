"""Plug-ins as pip leaves them: a dist-info directory and a module on sys.path, found by the real importlib.metadata."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oomcast.contract import CollectorSettings, CollectorSpec
from oomcast.metric import Metric
from oomcast.plugins import SpecError, find, load_specs

GOOD = """
from oomcast.contract import CollectorSettings, CollectorSpec
from oomcast.metric import Metric

class Settings(CollectorSettings):
    depth: int = 3

def create(settings, context):
    raise NotImplementedError

SPEC = CollectorSpec("{name}", "what it is", Settings, (Metric("oomcast_{metric}_bytes", "gauge", "Bytes."),), create)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(distribution: str, entry: str, code: str | None = None, entry_points: str | None = None) -> None:
        """Installs `distribution` with the module of the same name and one entry point called `entry`."""
        module = distribution.replace("-", "_")
        if code is not None:
            (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        text = entry_points or f"[oomcast.collectors]\n{entry} = {module}:SPEC\n"
        (info / "entry_points.txt").write_text(text)
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("oomcast_test_"):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> tuple[CollectorSpec, ...]:
    """Our own tuple, reduced to one collector, so that the tests do not change with it."""
    specs = (spec("alpha", "alpha_used"),)
    monkeypatch.setattr("oomcast_collectors.all.ALL", specs, raising=False)
    return specs


def spec(name: str, *metrics: str) -> CollectorSpec:
    rows = tuple(Metric(f"oomcast_{metric}_bytes", "gauge", "Bytes.") for metric in metrics)

    def create(settings: CollectorSettings, context: object) -> object:
        raise NotImplementedError

    return CollectorSpec(name, "help", CollectorSettings, rows, create)  # type: ignore[arg-type]


def test_without_plugins_it_is_the_explicit_tuple(own: tuple[CollectorSpec, ...]) -> None:
    assert load_specs() == own


def test_a_plugin_comes_after_ours(install: Install, own: tuple[CollectorSpec, ...]) -> None:
    install("oomcast-test-zeta", "zeta", GOOD.format(name="zeta", metric="zeta_used"))
    install("oomcast-test-beta", "beta", GOOD.format(name="beta", metric="beta_used"))
    found = find()
    assert [spec.name for spec in found.specs] == ["alpha", "beta", "zeta"]
    assert found.left_out == ()
    assert found.specs[1].settings.model_validate({}).model_dump() == {
        "enabled": True,
        "interval": 1.0,
        "timeout": 5.0,
        "depth": 3,
    }


BROKEN = {
    "import_error": ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    "syntax": ("def (", "SyntaxError: "),
    "exit": ("raise SystemExit('stop')", "SystemExit: stop"),
    "no_spec": ("x = 1", "AttributeError: "),
    "not_a_spec": ("SPEC = 3", "oomcast_test_beta:SPEC is a int, not a CollectorSpec"),
    "other_name": (GOOD.format(name="gamma", metric="g"), "is called 'beta', its collector 'gamma'"),
    "metric_taken": (GOOD.format(name="beta", metric="alpha_used"), "belongs to collector alpha"),
    "metric_of_core": (GOOD.format(name="beta", metric="core_used"), "belongs to the core"),
    "metric_twice": (
        GOOD.format(name="beta", metric="b")
        + "from dataclasses import replace\nSPEC = replace(SPEC, metrics=SPEC.metrics * 2)",
        "oomcast_b_bytes of 'beta' is listed twice",
    ),
    "no_metric": (
        GOOD.format(name="beta", metric="b") + "from dataclasses import replace\nSPEC = replace(SPEC, metrics=(1,))",
        "lists a int among its metrics",
    ),
    "generator": (
        GOOD.format(name="beta", metric="b")
        + "from dataclasses import replace\nSPEC = replace(SPEC, metrics=(m for m in SPEC.metrics))",
        "are no tuple",
    ),
    "settings": (
        GOOD.format(name="beta", metric="b") + "from dataclasses import replace\nSPEC = replace(SPEC, settings=dict)",
        "no subclass of CollectorSettings",
    ),
    "required": (
        GOOD.format(name="beta", metric="b").replace("depth: int = 3", "depth: int"),
        "the settings of 'beta' have no default for depth",
    ),
    "bad_name": (GOOD.format(name="beta", metric="b_ms"), "MetricError: "),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_is_logged_and_left_out(
    case: str, install: Install, own: tuple[CollectorSpec, ...], caplog: pytest.LogCaptureFixture
) -> None:
    code, reason = BROKEN[case]
    install("oomcast-test-beta", "beta", code if case != "bad_name" else code.replace("b_ms_bytes", "b_ms"))
    install("oomcast-test-good", "good", GOOD.format(name="good", metric="good"))
    found = find([Metric("oomcast_core_used_bytes", "gauge", "Bytes.")])
    assert [spec.name for spec in found.specs] == ["alpha", "good"]
    assert found.left_out == ("beta",)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("collector plug-in is left out: ")
    assert reason in record.getMessage()
    assert vars(record)["distribution"] == "oomcast-test-beta 1.2"


def test_a_plugin_cannot_take_the_name_of_ours(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("oomcast-test-thief", "alpha", GOOD.format(name="alpha", metric="thief"))
    found = find()
    assert [spec.name for spec in found.specs] == ["alpha"]
    assert found.left_out == ()  # the name is loaded, so its settings are checked
    assert "the collector name 'alpha' is taken" in caplog.text


def test_unreadable_metadata_hides_no_other_plugin(install: Install, caplog: pytest.LogCaptureFixture) -> None:
    install("oomcast-test-garbage", "x", None, "[oomcast.collectors]\nno equals sign here\n")
    install("oomcast-test-good", "good", GOOD.format(name="good", metric="good"))
    assert [spec.name for spec in load_specs()] == ["alpha", "good"]
    assert "oomcast_test_garbage-1.2.dist-info" in caplog.text


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        ((spec("alpha", "a"), spec("alpha", "b")), "the collector name 'alpha' is taken"),
        ((spec("alpha", "a"), spec("beta", "a")), "oomcast_a_bytes of 'beta' belongs to collector alpha"),
        ((spec("Alpha"),), "'Alpha' is not lower case"),
    ],
)
def test_our_own_mistakes_are_errors(
    specs: tuple[CollectorSpec, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oomcast_collectors.all.ALL", specs)
    with pytest.raises(SpecError, match=reason):
        load_specs()


def test_two_names_of_one_family_clash(monkeypatch: pytest.MonkeyPatch) -> None:
    """In OpenMetrics the counter x_total and the gauge x are the same family."""
    counter = Metric("oomcast_kills_total", "counter", "Kills.")
    gauge = replace(spec("beta"), metrics=(Metric("oomcast_kills", "gauge", "Kills."),))
    monkeypatch.setattr("oomcast_collectors.all.ALL", (gauge,))
    with pytest.raises(SpecError, match="oomcast_kills of 'beta' belongs to the core"):
        load_specs([counter])


def test_several_collectors_may_list_the_same_row(
    own: tuple[CollectorSpec, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = spec("alpha", "a")
    monkeypatch.setattr("oomcast_collectors.all.ALL", (shared, replace(shared, name="beta")))
    assert [one.name for one in load_specs()] == ["alpha", "beta"]
    with pytest.raises(SpecError, match="'alpha' belongs to the core"):
        load_specs(shared.metrics)
