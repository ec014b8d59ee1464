"""The settings of the gpu collector."""

from typing import Annotated, Literal

from pydantic import Field

from oomcast.contract import CollectorSettings


class GpuSettings(CollectorSettings):
    """Memory is sampled by threads of the collector's own; a run only publishes what they found."""

    source: Literal["auto", "nvml", "dcgm"] = Field(
        "auto", description="nvml: the driver's library; dcgm: a dcgm-exporter; auto: nvml where it is there, else dcgm"
    )
    sampling_period: Annotated[float, Field(ge=0.005, le=10)] = Field(
        0.02, description="seconds between two readings of a GPU's memory; longer where the driver is slow"
    )
    driver_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.05, description="share of a core that those readings may take; the period is stretched to stay within it"
    )
    slow_period: Annotated[float, Field(ge=1, le=60)] = Field(
        2.0, description="seconds between two readings of everything else: processes, power, temperature, errors .."
    )
    window: Annotated[float, Field(ge=1, le=600)] = Field(
        60.0, description="seconds over which peaks are kept; no shorter than the interval of the scrapes"
    )
    exhausted_ratio: Annotated[float, Field(gt=0, le=1)] = Field(
        0.98, description="used / (total - reserved) from which on memory counts as exhausted"
    )
    expected: Annotated[int, Field(ge=0, le=64)] | None = Field(
        None, description="GPUs that this machine should have; by default those that the kernel's driver knows"
    )
    load_grace: Annotated[float, Field(ge=0, le=3600)] = Field(
        900.0,
        description="seconds for which a process that has come, or a GPU that was empty, may load without a forecast;"
        " it ends early when memory stands still for a minute",
    )
    processes: Annotated[int, Field(ge=0, le=50)] = Field(
        5, description="processes per GPU with series of their own: so many of the largest, and of the fastest growing"
    )
    step_ratio: Annotated[float, Field(gt=0, le=1)] = Field(
        0.05, description="growth within step_seconds, as a share of usable memory, that is an event with its causes"
    )
    step_seconds: Annotated[float, Field(ge=2, le=600)] = Field(
        40.0, description="seconds over which growth is looked at and put down to processes"
    )
    dcgm_url: str = Field("", description="metrics of a dcgm-exporter; by default 127.0.0.1:9400 is tried")
    dcgm_period: Annotated[float, Field(ge=1, le=300)] = Field(5.0, description="seconds between two reads of it")
