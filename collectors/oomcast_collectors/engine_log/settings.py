"""The settings of the engine_log collector."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from oomcast.contract import CollectorSettings
from oomcast_collectors.engine_log.cost import worst_case
from oomcast_collectors.engine_log.matcher import WINDOW
from oomcast_collectors.engine_log.rules import SHIPPED, Rule, Severity

_WAYS = 2e7  # a fifth of a second at worst, in which the whole daemon stands still
_RESERVED = frozenset({"rule", "engine", "severity", "literal", "file", "unit", "namespace", "pod", "container"})

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Engine = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[ -~]+$")]
Text = Annotated[str, Field(min_length=3, max_length=200, pattern=r"^[^\n\r]+$")]
Regex = Annotated[str, Field(max_length=1000)]


class LogFiles(BaseModel):
    """Log files of one engine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Engine = Field(description="what series call it")
    paths: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="files or patterns (*, ?, [..]); what a pattern finds must not look like a predecessor (.1, .gz)"
    )

    @field_validator("paths")
    @classmethod
    def _absolute(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not path.startswith("/") or "\0" in path:
                raise ValueError(f"{path!r}: an absolute path is needed")
        return paths


class LogUnit(BaseModel):
    """A systemd unit whose journal is followed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.@\\-]{1,256}$")] = Field(description="vllm.service")
    engine: Engine | None = Field(None, description="what series call it; by default the unit without .service")

    @property
    def name(self) -> str:
        return self.engine or self.unit.removesuffix(".service")


class RuleSettings(BaseModel):
    """A rule of one's own; one with the name of a shipped rule replaces it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = Field(description="value of the label rule")
    contains: Annotated[tuple[Text, ...], Field(min_length=1, max_length=20)] = Field(
        description="literals, of which a line has one"
    )
    regex: Regex = Field("", description="what the text around the literal matches as well")
    numbers: Mapping[Name, Regex] = Field({}, description="by name, a regex whose group is a number to tell")
    severity: Severity = Field("warning", description="info is told and not counted")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        for what, pattern in {"regex": self.regex, **self.numbers}.items():
            try:
                ways = worst_case(pattern, WINDOW)
            except ValueError as error:
                raise ValueError(f"rule {self.name}: {what}: {error}") from error
            if ways > _WAYS:
                raise ValueError(
                    f"rule {self.name}: {what}: could take for ever; bound what repeats, as in \\d{{1,10}}"
                )
        for name in self.numbers:
            if name in _RESERVED:
                raise ValueError(f"rule {self.name}: numbers: {name} is the name of another field of its events")
        return self

    def rule(self) -> Rule:
        return Rule(self.name, self.contains, self.severity, self.regex, self.numbers)


class EngineLogSettings(CollectorSettings):
    """Logs are followed in a thread of its own; a run only publishes what was counted."""

    files: tuple[LogFiles, ...] = Field((), description="log files to follow, from their ends on")
    units: Annotated[tuple[LogUnit, ...], Field(max_length=32)] = Field(
        (), description="units to follow in the journal"
    )
    containers: bool = Field(False, description="true follows the logs of this node's pods that names matches")
    names: tuple[str, ...] = Field(
        (
            "*vllm*",
            "*sglang*",
            "*tgi*",
            "*text-generation*",
            "*trtllm*",
            "*triton*",
            "*llama*",
            "*lmdeploy*",
            "*dynamo*",
        ),
        description="patterns of the names of containers or pods that are engines",
    )
    rules: Annotated[tuple[RuleSettings, ...], Field(max_length=60)] = Field(
        (), description="rules to add, or to replace shipped ones with"
    )

    @field_validator("rules")
    @classmethod
    def _named_once(cls, rules: tuple[RuleSettings, ...]) -> tuple[RuleSettings, ...]:
        names = [rule.name for rule in rules]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"rule {', '.join(sorted(twice))}: is there more than once")
        return rules

    def all_rules(self) -> Sequence[Rule]:
        """The shipped rules and these, of which a name is there once."""
        return tuple({rule.name: rule for rule in (*SHIPPED, *(rule.rule() for rule in self.rules))}.values())
