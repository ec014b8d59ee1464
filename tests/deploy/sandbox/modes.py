"""The ways in which the daemon is run side by side in one machine. Standard library only: the guest reads this too."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mode:
    """unit: its name, a copy of oomcast.service unless that itself, or written from scratch for the reference.

    shipped: the drop-ins of deploy/systemd that it gets. lines: of a drop-in of the test's own, in [Service].
    attached: eBPF probes that it is waited for.
    """

    name: str
    unit: str
    port: int
    shipped: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    attached: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        return self.unit.removesuffix(".service")

    @property
    def socket(self) -> Path:
        return Path("/run", self.directory, "requests.sock")


REFERENCE = Mode(
    "reference",
    "oomcast-reference.service",
    19133,
    attached=("allocations", "crashes", "oom_kills", "major_faults"),
)
"""Root, outside any sandbox: what the others are compared with."""

MODES = (
    Mode("shipped", "oomcast.service", 19128),
    Mode(
        "ebpf-kernel",
        "oomcast-kernel.service",
        19129,
        shipped=("ebpf-kernel.conf",),
        attached=("crashes", "oom_kills", "major_faults"),
    ),
    Mode(
        "ebpf-programs",
        "oomcast-programs.service",
        19130,
        shipped=("ebpf-programs.conf",),
        attached=REFERENCE.attached,
    ),
    Mode("root", "oomcast-root.service", 19131, lines=("User=root", "Group=root")),
    Mode("plain", "oomcast-plain.service", 19132, lines=("AmbientCapabilities=", "CapabilityBoundingSet=")),
    REFERENCE,
)

TRIES = ("tries", "tries-root")
"""Units of programs that end: what the sandbox allows its user, and root in it."""

CHECK = "check"
"""What `oomcast check` says beside the daemon, with the shipped settings and what they suggest for eBPF, on a kernel as
Debian sets it up."""

ENGINE = "engine.service"
VICTIM = "victim.service"
CRASH = "crash.service"
PROTECTED, UNPROTECTED = "below-root.service", "below-slice.service"
"""Both have MemoryMin=32M and hold as much; the second is in system.slice, which protects nothing."""

HELD = 32 << 20
LOG = Path("/home/engine/log/engine.log")
NVML = Path("/opt/nvml")
