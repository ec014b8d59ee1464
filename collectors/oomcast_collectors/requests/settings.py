"""The settings of the requests collector."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from oomcast.contract import CollectorSettings
from oomcast_collectors.requests.metrics import MAX_ENGINES

_LONGEST_PATH = 107
"""Bytes of a socket's path (struct sockaddr_un, without the final zero)."""

Id = Annotated[int, Field(ge=0, le=(1 << 32) - 2)]


class RequestsSettings(CollectorSettings):
    """Messages are counted as they come, whatever the interval; it only decides how fresh the counters are."""

    interval: Annotated[float, Field(ge=0.2, le=3600)] = Field(5.0, description="seconds between two runs")
    socket: Path | None = Field(None, description="Unix datagram socket to make; without one nothing is received")
    mode: Annotated[str, Field(pattern=r"^0[0-7]{3}$")] = Field(
        "0660", description="access to the socket's file, in quotes: who may not write it cannot send"
    )
    group: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="group of the socket's file, by default the daemon's"
    )
    uids: tuple[Id, ...] | None = Field(
        None, description="users whose messages are taken; by default root and the daemon's own"
    )
    gids: tuple[Id, ...] = Field((), description="primary groups whose messages are taken as well")
    rate: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        10_000, description="messages a second that are taken, with bursts of as many"
    )
    engines: Annotated[int, Field(ge=1, le=MAX_ENGINES)] = Field(
        MAX_ENGINES, description="names of engines that are counted at a time"
    )
    window: Annotated[float, Field(ge=60, le=86400)] = Field(
        3600.0, description="seconds over which violations of objectives are computed"
    )

    @field_validator("socket")
    @classmethod
    def _can_be_bound(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        if not path.is_absolute() or "\0" in str(path):
            raise ValueError("should be an absolute path")
        if len(os.fsencode(path)) > _LONGEST_PATH:
            raise ValueError(f"should have at most {_LONGEST_PATH} bytes")
        return path

    @property
    def mode_bits(self) -> int:
        return int(self.mode, 8)
