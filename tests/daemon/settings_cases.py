"""Settings of two made-up collectors, with every kind of value that settings can have."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from oomcast.contract import Collector, CollectorSettings, CollectorSpec, Context
from oomcast.settings import Settings, SettingsError, load


class Target(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    kind: str | None = None


class Limits(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    ratio: float = Field(0.5, ge=0, le=1, description="share")
    depth: int = Field(3, gt=0, description="levels")


class EngineSettings(CollectorSettings):
    interval: float = Field(2.0, ge=0.2, description="seconds between two runs")
    targets: tuple[Target, ...] = Field((), description="engines to scrape")
    limits: Limits = Field(Limits.model_validate({}), description="what is too much")
    unit: str | None = Field(None, description="systemd unit; any if null")
    words: tuple[str, ...] = Field(("a: b", "*", "x\ty", "007"), description="words that need care in YAML")
    spread: float | None = Field(None, description="a number or nothing")


def create(settings: CollectorSettings, context: Context) -> Collector:
    raise NotImplementedError


SPECS = (
    CollectorSpec("cgroup", "Memory of cgroups", CollectorSettings, (), create),
    CollectorSpec("engines", "Inference engines", EngineSettings, (), create),
)


def loaded(tmp_path: Path, text: str | bytes, environ: Mapping[str, str] | None = None) -> Settings:
    path = tmp_path / "oomcast.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path, environ or {}, SPECS)


def problems(tmp_path: Path, text: str | bytes, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text, environ)
    return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).split("\n")]


def engines(settings: Settings) -> EngineSettings:
    found = settings.collectors["engines"]
    assert isinstance(found, EngineSettings)
    return found
