"""One message about one finished request, as docs/requests.md defines it."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

VERSION = 1
MAX_BYTES = 2048

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}\Z")

_Count = Annotated[int, Field(ge=0, le=1 << 40)]
_Seconds = Annotated[float, Field(ge=0, le=1e6)]


class Unreadable(Exception):
    """outcome: what the message counts as. The text names the fault and holds nothing of the message."""

    def __init__(self, outcome: Literal["invalid", "version"], reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


class Message(BaseModel):
    """Version 1. An optional key that is absent or null is not known to the sender; unknown keys are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    v: Annotated[int, Field(ge=VERSION, le=VERSION)]
    engine: Annotated[str, Field(min_length=1, max_length=128)]
    status: Annotated[int, Field(ge=100, le=599)]
    prompt_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cached_tokens: _Count | None = None
    empty: bool | None = None
    trace_id: Any = None
    user: bool | None = None
    tenant: bool | None = None
    retries: _Count | None = None
    breaker: Literal["closed", "open", "half_open"] | None = None
    ttft_seconds: _Seconds | None = None
    e2e_seconds: _Seconds | None = None
    lost: _Count | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if not self.engine.isprintable():
            raise ValueError("engine has characters that do not print")
        if self.prompt_tokens is None:
            if self.status < 400:
                raise ValueError("prompt_tokens is missing, and the request did not fail")
        elif (self.cached_tokens or 0) > self.prompt_tokens:
            raise ValueError("cached_tokens is more than prompt_tokens")
        return self

    @property
    def without_content(self) -> bool:
        """As told, else whether there were no output tokens; False where neither is known."""
        return self.output_tokens == 0 if self.empty is None else self.empty

    @property
    def trace(self) -> str | None:
        """The trace id, if it is one."""
        found = self.trace_id
        return found if isinstance(found, str) and _TRACE_ID.match(found) else None


def read(raw: bytes) -> Message:
    """Raises Unreadable."""
    try:
        return Message.model_validate_json(raw)
    except ValidationError as error:
        raise _unreadable(error) from None


def _unreadable(error: ValidationError) -> Unreadable:
    faults = error.errors(include_url=False, include_context=False)
    # What another version has at the other keys is its own affair.
    if any(fault["loc"] == ("v",) and type(fault["input"]) is int for fault in faults):
        return Unreadable("version", f"only version {VERSION} is known")
    fault = faults[0]
    if fault["type"] == "value_error":
        return Unreadable("invalid", fault["msg"].removeprefix("Value error, "))
    place = f"{fault['loc'][0]}: " if fault["loc"] else ""
    return Unreadable("invalid", place + fault["type"].replace("_", " "))
