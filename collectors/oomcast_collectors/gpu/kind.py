"""Which kind of memory a GPU has: what its numbers mean depends on it."""

import re
from typing import Literal

from oomcast_collectors.gpu.driver import Identity

Kind = Literal["dedicated", "coherent", "unified", "unknown"]

_INTEGRATED = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|Jetson|nvgpu)\b", re.IGNORECASE)
_LOOKS = 3
_TOLERANCE = 0.1


class MemoryKind:
    """The kind of one GPU; made once for each UUID and kept, since a decision stands for the life of the process.

    What is known of the parts:

    - GB10 (DGX Spark) has no memory of its own, it uses the host's. Its addressing mode is ATS. NVML answers
      NOT_SUPPORTED to both memory calls with drivers 580 and 595; success has been reported too. Processes still have
      their memory. Free memory as CUDA tells it there is MemFree, which page cache lowers, and not MemAvailable.
    - Jetson (Xavier, Orin, Thor) shares the host's memory too; names are "Orin (nvgpu)", "Thor", "NVIDIA Thor". NVML
      does not tell memory there.
    - Grace Hopper and Grace Blackwell (GH200, GB200, GB300) have memory of their own, and ATS. By default it is a NUMA
      node of the host: the kernel may place pages and page cache in it, and NVML warns that its numbers depend on the
      kernel's accounting. In CDMM mode (from driver 580) the driver keeps it to itself. "coherent" does not say which.
    - Discrete cards have HMM or none. One that answers NOT_SUPPORTED has no memory that is known, and surely not the
      host's.
    """

    def __init__(self) -> None:
        self.kind: Kind = "unknown"
        self._looks = 0
        """At GPUs without memory; _LOOKS also where more of them would tell nothing."""

    def look(self, identity: Identity, total: int | None, host_total: int | None) -> Kind:
        """total: bytes that the driver says the GPU has, None where it said nothing this time; host_total: MemTotal of
        the host in bytes, None where that is not known."""
        if self.kind == "unknown":
            self.kind = self._decide(identity, total, host_total)
        return self.kind

    def _decide(self, identity: Identity, total: int | None, host_total: int | None) -> Kind:
        integrated = _INTEGRATED.search(identity.name) is not None
        if not identity.memory_api or total == 0:
            return self._without_memory(integrated or identity.addressing == "ats")
        # Whoever has answered once is not unified for not answering later.
        self._looks = _LOOKS
        if integrated:
            if total is None or host_total is None:
                return "unknown"
            if abs(total - host_total) <= _TOLERANCE * host_total:
                return "unified"
        return "coherent" if identity.addressing == "ats" else "dedicated"

    def _without_memory(self, shares: bool) -> Kind:
        """shares: something else than the missing memory says that the GPU uses the host's."""
        if self._looks >= _LOOKS:
            return "unknown"
        # Every one of the first looks has to say so.
        self._looks = self._looks + 1 if shares else _LOOKS
        return "unified" if shares and self._looks == _LOOKS else "unknown"
