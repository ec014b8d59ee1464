"""The shipped probes and the code that reads them. A probe without a row here is read by its description alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from oomcast_collectors.ebpf.child.part import Maker
from oomcast_collectors.ebpf.description import Description
from oomcast_collectors.ebpf.settings import EbpfSettings

Adapted = tuple[Description, str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Shipped:
    """make: its part. adapt: description, program and constants as the settings want them."""

    make: Maker
    adapt: Callable[[Description, str, EbpfSettings], Adapted] | None = None


SHIPPED: Mapping[str, Shipped] = MappingProxyType({})
