"""What a serving node promises: length classes of prompts, and how soon they are answered."""

import math
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Objective = Literal["ttft", "e2e"]
"""Time to first token, and until the last one."""

OBJECTIVES: tuple[Objective, ...] = ("ttft", "e2e")

_Seconds = Annotated[float, Field(gt=0, le=86400)]
_Tokens = Annotated[int, Field(ge=1, le=1 << 40)]
_Probability = Annotated[float, Field(ge=0, le=1)]


_PRIORS = ((512.0, 0.00001), (2048.0, 0.012), (math.inf, 0.386))
"""By the longest prompt of a class, in tokens."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LengthClass(_Model):
    """Prompts above the class before and up to `up_to` tokens; None: all that are longer."""

    up_to: _Tokens | None = None
    prior: _Probability | None = Field(
        default=None,
        description="share of its requests taken to miss an objective until 1000 were measured; by default 0.00001 up"
        " to 512 tokens, 0.012 up to 2048, 0.386 above",
    )
    ttft: _Seconds | None = Field(default=None, description="objective: seconds to the first token")
    e2e: _Seconds | None = Field(default=None, description="objective: seconds to the last token")

    def objective(self, which: Objective) -> float | None:
        return self.ttft if which == "ttft" else self.e2e

    @property
    def assumed(self) -> float:
        """The prior, by the table of the defaults where none is set."""
        if self.prior is not None:
            return self.prior
        return next(prior for end, prior in _PRIORS if (self.up_to or math.inf) <= end)


class RiskScore(_Model):
    """0 up to `calm` tokens, in a line to `ramp` at `knee`; above it jump * growth^(tokens - knee), at most 1."""

    calm: _Tokens = Field(default=512, description="prompt tokens up to which the score is 0")
    knee: _Tokens = Field(default=2048, description="prompt tokens from which on it grows exponentially")
    ramp: _Probability = Field(default=0.02, description="the score at the knee")
    jump: _Probability = Field(default=0.386, description="the score right above the knee")
    growth: Annotated[float, Field(ge=1, le=2)] = Field(
        default=1.002, description="its factor per token above the knee"
    )

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.calm >= self.knee:
            raise ValueError("calm should be less than knee")
        return self

    def score(self, tokens: float) -> float:
        """0 to 1, for a prompt of so many tokens."""
        if tokens <= self.calm:
            return 0.0
        if tokens <= self.knee:
            return self.ramp * (tokens - self.calm) / (self.knee - self.calm)
        # What far exceeds 1 would overflow.
        above = min(tokens - self.knee, 1e6)
        return 1.0 if above * (self.growth - 1) > 100 else min(self.jump * self.growth**above, 1.0)


CLASSES = (
    *(LengthClass(up_to=end) for end in (512, 2048, 65_536, 131_072, 200_000)),
    LengthClass(),
)


class Slo(_Model):
    """classes: shortest first, the last one without an end."""

    classes: Annotated[tuple[LengthClass, ...], Field(min_length=1, max_length=12)] = Field(
        default=CLASSES,
        description="length classes of prompts, shortest first, the last one without up_to; objectives (ttft, e2e) have"
        " no default, and without any there are no series about them; replaces the whole list",
    )
    risk_score: RiskScore = Field(
        default_factory=RiskScore, description="the score of a prompt by its length, for reference"
    )

    @property
    def has_objectives(self) -> bool:
        return any(one.objective(which) is not None for one in self.classes for which in OBJECTIVES)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        ends = [one.up_to for one in self.classes]
        if ends[-1] is not None or None in ends[:-1]:
            raise ValueError("the last of the classes, and no other, should be without up_to")
        if any(low >= high for low, high in pairwise(end for end in ends if end is not None)):
            raise ValueError("the classes should be in the order of up_to, shortest first")
        return self
