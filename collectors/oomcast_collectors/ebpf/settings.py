"""The settings of the ebpf collector."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from oomcast.contract import CollectorSettings
from oomcast_collectors.ebpf.description import Name

SHIPPED_PAIRS = ("cuda", "cudart", "jemalloc", "tcmalloc", "rust")
Patterns = tuple[Annotated[str, Field(min_length=1, max_length=200)], ...]
Symbol = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.$@]{0,254}$")]
Argument = Annotated[int, Field(ge=1, le=6)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Targets(_Model):
    """Whose memory is watched; what they fork is, too. Probes are attached to these processes and to no others."""

    engines: bool = Field(True, description="inference engines, as serving_processes names them")
    processes: Patterns = Field((), description="patterns of process names, as in serving_processes")
    units: Patterns = Field((), description="systemd units: vllm.service")
    containers: Patterns = Field((), description="patterns of container names, pod names or container ids")
    gpu: bool = Field(False, description="true adds every process that holds an NVIDIA GPU")
    most: Annotated[int, Field(ge=1, le=1000)] = Field(100, description="processes at most, the oldest first")


class Pair(_Model):
    """A function that gives memory and one that takes it back. Arguments are counted from 1."""

    kind: Name = Field(description="value of the label kind")
    library: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="pattern of the file name, libarena.so*; @ is the program itself"
    )
    allocate: Symbol = Field(description="the function that gives memory")
    free: Symbol = Field(description="the function that takes it back")
    size: Argument = Field(1, description="which argument of allocate is the size in bytes")
    count: Argument | None = Field(None, description="which one it is multiplied by, as calloc's")
    result: Argument | None = Field(
        None, description="which one points to where the address is written; by default the address is returned"
    )
    freed: Argument = Field(1, description="which argument of free is the address")


class Allocations(_Model):
    """How closely allocations are followed, and so what that costs the processes. flow: brk and mmap, some hundred
    calls a second at most. libc: each malloc and free, 2 to 4 us each."""

    pairs: tuple[Literal["cuda", "cudart", "jemalloc", "tcmalloc", "rust"] | Pair, ...] = Field(
        (), description="allocators to follow, by name (cuda, cudart, jemalloc, tcmalloc, rust) or by their functions"
    )
    libc: Literal["off", "sampled", "full"] = Field(
        "off", description="malloc and its like: always, or for a share of the time"
    )
    libc_share: Annotated[float, Field(gt=0, le=0.5)] = Field(0.05, description="of the time, where libc is sampled")
    budget: Annotated[float, Field(gt=0, le=100)] = Field(
        5.0, description="per cent of a core that following libc may cost all processes together"
    )
    ages: Annotated[tuple[float, ...], Field(min_length=1, max_length=8)] = Field(
        (0.1, 5.0, 60.0, 3600.0), description="seconds that divide outstanding memory into classes by age"
    )
    leak_age: Annotated[float, Field(gt=0)] = Field(300.0, description="seconds after which memory may be a leak")
    leak_bytes: Annotated[int, Field(gt=0)] = Field(
        1 << 30, description="bytes older than that, of one process and kind, which are told with their stacks"
    )
    stacks: Annotated[int, Field(ge=1, le=50)] = Field(5, description="stacks in an event, those with most bytes")
    live: Annotated[int, Field(ge=1024, le=1 << 24)] = Field(
        1 << 18, description="blocks that are followed at most; 104 bytes of kernel memory each"
    )

    @field_validator("ages")
    @classmethod
    def _rising(cls, ages: tuple[float, ...]) -> tuple[float, ...]:
        if any(age <= 0 for age in ages) or sorted(set(ages)) != list(ages):
            raise ValueError("ages must rise from above 0")
        return ages

    @model_validator(mode="after")
    def _kinds_once(self) -> Self:
        kinds = [pair if isinstance(pair, str) else pair.kind for pair in self.pairs]
        taken = {"brk", "mmap", "libc", *(SHIPPED_PAIRS if any(isinstance(p, Pair) for p in self.pairs) else ())}
        own = [pair.kind for pair in self.pairs if isinstance(pair, Pair)]
        if len(set(kinds)) < len(kinds) or taken.intersection(own):
            raise ValueError(f"pairs: a kind is there twice, or is one of {', '.join(sorted(taken))}")
        return self


class EbpfSettings(CollectorSettings):
    """Programs in the kernel, held by a child process. A run only publishes what the child last told."""

    enabled: bool = Field(
        False,
        description="true starts a child process (150 MB) that loads programs with BCC; privileges: docs/ebpf.md",
    )
    probes: tuple[Name, ...] = Field(
        ("allocations", "crashes", "oom_kills"),
        description="what to load; also major_faults, panics, cuda_streams, and what is in the folder",
    )
    folder: Path | None = Field(None, description="folder with probes of your own: NAME.yaml and NAME.c")
    targets: Targets = Field(default_factory=lambda: Targets.model_validate({}), description="who is followed")
    allocations: Allocations = Field(
        default_factory=lambda: Allocations.model_validate({}), description="of the probe allocations"
    )

    @field_validator("probes")
    @classmethod
    def _once(cls, probes: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(probes)) < len(probes):
            raise ValueError("a probe is there twice")
        return probes
