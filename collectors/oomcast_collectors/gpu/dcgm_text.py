"""What a dcgm-exporter's page says of each GPU: exposition text -> `DcgmGpu`, in base units.

The page is another program's, of any release: a line that cannot be read costs that line.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oomcast.metric import label_text
from oomcast_collectors import exposition_text
from oomcast_collectors.exposition_text import Line
from oomcast_collectors.gpu.dcgm_quantities import ROWS, DcgmMemory, Values
from oomcast_collectors.gpu.driver import Field

_MAX_GPUS = 64
_MAX_EXAMPLE = 200

_PAGE = re.compile(rb"^(?:# (?:HELP|TYPE) )?(?:DCGM_FI_|dcgm_)", re.M)
_UUID = re.compile(r"GPU-[\w.-]{1,80}\Z", re.A)
_NUMBER = re.compile(r"[0-9]{1,4}\Z")
_PCI = re.compile(r"([0-9a-f]{4,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\Z")


class DcgmInstance(NamedTuple):
    """A MIG GPU instance. profile: 3g.71gb, as the exporter calls it."""

    instance: int
    profile: str
    memory: DcgmMemory


@dataclass(frozen=True, slots=True)
class DcgmGpu:
    """One GPU of the page. pci: as sysfs has it, 0000:3b:00.0. name, pci, driver: "" where the page does not tell.

    memory and the rest are the whole GPU's, of which the page has nothing where MIG is on and only instances are
    exported. gpu_utilization, copy_utilization: 0 to 1. xid: the last one that DCGM saw, for ever; 0 for none.
    blank: what DCGM says it has no value for. invalid: what had a reading that cannot be true. Both are quantities:
    a `Field`, used, free, reserved, total, used_ratio, gpu, copy, xid.
    """

    uuid: str
    index: int
    name: str
    pci: str
    driver: str
    memory: DcgmMemory
    gpu_utilization: float | None
    copy_utilization: float | None
    xid: int | None
    fields: Mapping[Field, float]
    instances: tuple[DcgmInstance, ...]
    blank: frozenset[str]
    invalid: frozenset[str]


class Page(NamedTuple):
    """gpus: by index. malformed: lines about GPUs that could not be read; example: the first of them, cut."""

    gpus: tuple[DcgmGpu, ...]
    malformed: int
    example: str


def is_page(body: bytes) -> bool:
    """Whether it has any metric of a dcgm-exporter, be it without values."""
    return _PAGE.search(body) is not None


def parse(body: bytes) -> Page:
    gpus: dict[str, _Gpu] = {}
    page = exposition_text.read(body, ROWS)
    unfit, example = 0, ""
    for line in page:
        try:
            _take(line, gpus)
        except ValueError:
            unfit += 1
            example = example or f"{line.name}{label_text(tuple(line.labels.items()))} {line.number}"[:_MAX_EXAMPLE]
    results = sorted((gpu.result() for gpu in gpus.values()), key=lambda gpu: (gpu.index, gpu.uuid))
    return Page(tuple(results), page.malformed + unfit, page.example or example)


@dataclass(slots=True)
class _Gpu:
    uuid: str
    index: int
    name: str = ""
    pci: str = ""
    driver: str = ""
    values: Values = field(default_factory=Values)
    instances: dict[int, tuple[str, Values]] = field(default_factory=dict)

    def describe(self, labels: Mapping[str, str]) -> None:
        self.name = self.name or labels.get("modelName", "")
        self.pci = self.pci or _pci(labels.get("pci_bus_id", ""))
        version = labels.get("DCGM_FI_DRIVER_VERSION") or labels.get("DCGM_FI_SYSTEM_DRIVER_VERSION", "")
        self.driver = self.driver or version

    def result(self) -> DcgmGpu:
        xid = self.values.get("xid")
        return DcgmGpu(
            self.uuid,
            self.index,
            self.name,
            self.pci,
            self.driver,
            self.values.memory(),
            self.values.get("gpu"),
            self.values.get("copy"),
            None if xid is None else int(xid),
            self.values.fields(),
            tuple(DcgmInstance(i, profile, v.memory()) for i, (profile, v) in sorted(self.instances.items())),
            self.values.blank(),
            frozenset(self.values.invalid.union(*(v.invalid for _, v in self.instances.values()))),
        )


def _take(line: Line, gpus: dict[str, _Gpu]) -> None:
    """Raises ValueError when it is about a GPU and names it in a way that cannot be."""
    labels = line.labels
    uuid = labels.get("UUID") or labels.get("uuid", "")
    if not uuid or "nvlink" in labels:
        return
    values = _subject(uuid, labels, gpus)
    row = ROWS[line.name]
    if line.name == "DCGM_FI_DEV_GPU_UTIL_RATIO" and "." not in line.number:
        # 4.6 gave the name to the integer percentage, 4.7 to a double, which is printed with six decimals.
        row = ROWS["DCGM_FI_DEV_GPU_UTIL"]
    values.add(row, line.value, of_pod=bool(labels.get("pod") or labels.get("pod_name")))


def _subject(uuid: str, labels: Mapping[str, str], gpus: dict[str, _Gpu]) -> Values:
    """The values of what the line is about, a GPU or an instance of one. Raises ValueError."""
    if not _UUID.match(uuid):
        raise ValueError
    gpu = gpus.get(uuid)
    if gpu is None:
        if len(gpus) >= _MAX_GPUS:
            raise ValueError
        gpu = gpus[uuid] = _Gpu(uuid, _number(labels.get("gpu", "")))
    gpu.describe(labels)
    if "GPU_I_ID" not in labels:
        return gpu.values
    _, values = gpu.instances.setdefault(_number(labels["GPU_I_ID"]), (labels.get("GPU_I_PROFILE", ""), Values()))
    return values


def _number(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError
    return int(text)


def _pci(text: str) -> str:
    match = _PCI.match(text.lower())
    return f"{int(match[1], 16):04x}{match[2]}" if match else ""
