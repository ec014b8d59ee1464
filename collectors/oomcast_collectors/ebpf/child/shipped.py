"""The shipped probes and the code that reads them. A probe without a row here is read by its description alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from oomcast_collectors.ebpf.child.allocations import part as allocations
from oomcast_collectors.ebpf.child.allocations.part import AllocationsPart
from oomcast_collectors.ebpf.child.cuda import streams as cuda_streams
from oomcast_collectors.ebpf.child.cuda.streams import CudaStreamsPart
from oomcast_collectors.ebpf.child.cuda.unified_memory import UnifiedMemoryPart
from oomcast_collectors.ebpf.child.deaths import crashes, oom_kills
from oomcast_collectors.ebpf.child.deaths.crashes import CrashesPart
from oomcast_collectors.ebpf.child.deaths.oom_kills import OomKillsPart
from oomcast_collectors.ebpf.child.deaths.panics import PanicsPart
from oomcast_collectors.ebpf.child.faults import major_faults
from oomcast_collectors.ebpf.child.faults.major_faults import MajorFaultsPart
from oomcast_collectors.ebpf.child.part import Maker
from oomcast_collectors.ebpf.description import Description
from oomcast_collectors.ebpf.settings import EbpfSettings

Adapted = tuple[Description, str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Shipped:
    """make: its part. adapt: description, program and constants as the settings want them."""

    make: Maker
    adapt: Callable[[Description, str, EbpfSettings], Adapted] | None = None


SHIPPED: Mapping[str, Shipped] = MappingProxyType(
    {
        "allocations": Shipped(AllocationsPart, allocations.adapt),
        "cuda_streams": Shipped(CudaStreamsPart, cuda_streams.adapt),
        "crashes": Shipped(CrashesPart, crashes.adapt),
        "major_faults": Shipped(MajorFaultsPart, major_faults.adapt),
        "oom_kills": Shipped(OomKillsPart, oom_kills.adapt),
        "panics": Shipped(PanicsPart),
        "unified_memory": Shipped(UnifiedMemoryPart),
    }
)
