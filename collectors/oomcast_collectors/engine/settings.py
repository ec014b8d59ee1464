"""The settings of the engine collector."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from oomcast.contract import CollectorSettings
from oomcast_collectors.engine.reading import Kind


class Endpoint(BaseModel):
    """One engine. url: of the server, or of its metrics where they have a port or path of their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(pattern=r"^https?://")] = Field(description="of the engine, http://127.0.0.1:8000")
    name: str = Field("", description="what series call it; by default its unit or container, and its port")
    kind: Kind | None = Field(None, description="by default it is found out by what the engine serves")
    bearer_token_file: Path | None = Field(None, description="file with the token to send; read again when it changes")
    ca_file: Path | None = Field(None, description="certificates to trust in place of the system's")
    insecure: bool = Field(False, description="true accepts any certificate")
    timeout: Annotated[float, Field(gt=0, le=60)] = Field(10.0, description="seconds for a whole answer")
    model_config_file: Path | None = Field(
        None, description="config.json of the model, for bytes per token where the engine does not tell"
    )
    tensor_parallel: Annotated[int, Field(ge=1, le=1024)] = Field(1, description="ranks the model is split over")
    cache_dtype: str = Field("auto", description="type of the KV cache, as the engine was told")

    @field_validator("url")
    @classmethod
    def _has_host_and_port(cls, url: str) -> str:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:  # the port raises ValueError itself where it is no number
            raise ValueError("should be a URL with a host, like http://127.0.0.1:8000")
        return url


class EngineSettings(CollectorSettings):
    """Each engine is looked at in a thread of its own; a run only publishes what was found."""

    endpoints: tuple[Endpoint, ...] = Field((), description="engines to watch")
    discover: bool = Field(False, description="true looks for engines among this machine's processes that listen")
    period: Annotated[float, Field(ge=0.5, le=300)] = Field(1.0, description="seconds between two looks at an engine")
    hit_window: Annotated[float, Field(ge=10, le=86400)] = Field(
        300.0, description="seconds over which the hit ratio is computed"
    )
    hit_min_queries: Annotated[int, Field(ge=1)] = Field(
        10_000, description="tokens looked up in the window below which there is no hit ratio"
    )
    length_window: Annotated[float, Field(ge=60, le=86400)] = Field(
        3600.0, description="seconds over which the shares of long prompts are computed"
    )
