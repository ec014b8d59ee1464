"""The shipped probes and the code that reads them. A probe without a row here is read by its description alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from oomcast_collectors.ebpf.child import allocations, crashes, cuda_streams, major_faults, oom_kills
from oomcast_collectors.ebpf.child.allocations import AllocationsPart
from oomcast_collectors.ebpf.child.crashes import CrashesPart
from oomcast_collectors.ebpf.child.cuda_streams import CudaStreamsPart
from oomcast_collectors.ebpf.child.major_faults import MajorFaultsPart
from oomcast_collectors.ebpf.child.oom_kills import OomKillsPart
from oomcast_collectors.ebpf.child.panics import PanicsPart
from oomcast_collectors.ebpf.child.part import Maker
from oomcast_collectors.ebpf.child.unified_memory import UnifiedMemoryPart
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
