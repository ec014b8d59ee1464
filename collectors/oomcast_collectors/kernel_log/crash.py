"""Crashes of processes (x86, arm64, RISC-V) and of GPUs (NVRM: Xid): a line of the kernel's log -> what it states."""

import re
from dataclasses import dataclass

MESSAGE_LIMIT = 256  # characters kept of a driver's message

_HEX = "[0-9a-f]{1,16}"
_TASK = r"(?P<comm>.{0,64})\[(?P<pid>\d{1,10})\]"
# Since 6.10 the module carries the offset in its file: name[offset,start+size].
_MODULE = rf"(?:,? in (?P<module>.{{1,255}})\[(?:{_HEX},)?{_HEX}\+{_HEX}\])?(?: likely on CPU .{{0,99}})?\Z"
_FORMS = tuple(
    re.compile(_TASK + form + _MODULE if form.startswith(":") else form + _MODULE, re.S)
    for form in (
        # x86. A jump to nowhere has no module.
        rf": segfault at (?P<address>{_HEX}) ip (?P<ip>{_HEX}) sp {_HEX} error {_HEX}",
        rf"traps: {_TASK} (?:trap )?(?P<cause>.{{1,64}}?) ip:(?P<ip>{_HEX}) sp:{_HEX}(?: ssp:{_HEX})?"
        rf" error:{_HEX}(?:\([^)]{{1,32}}\))?",
        # arm64 since 4.19, and before.
        rf": unhandled exception: (?:[^,]{{1,64}}, ESR 0x{_HEX}, )?(?P<cause>.{{1,128}}?)",
        rf": unhandled (?P<cause>.{{1,64}}?) \(\d{{1,3}}\) at (?:0x)?(?P<address>{_HEX}), esr 0x{_HEX}",
        # RISC-V.
        rf": unhandled (?P<cause>signal \d{{1,3}}) code 0x{_HEX} at 0x(?P<address>{_HEX})",
    )
)
# kernel.print-fatal-signals=1, any architecture: [path: ]comm[/pid]. Aborts and kills are no crash of this kind.
_FATAL = re.compile(
    r"(?:.{0,4096}: )?(?P<comm>.{0,64}?)(?:/(?P<pid>\d{1,10}))?: "
    r"potentially unexpected fatal (?P<cause>signal (?:4|5|7|8|11))\.\Z",
    re.S,
)
_XID = re.compile(
    r"NVRM: (?:NVRM: )?Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?"
    r"(?: GPU-I:(\w{1,8}))?\): (\d{1,6})(?:, (.*))?\Z",
    re.S,
)
_XID_PROCESS = re.compile(r"pid='?(?:<unknown>|(\d{1,10}))'?(?:, name='?(.{0,64}?)'?)?(?:, (.*))?\Z", re.S)


@dataclass(frozen=True, slots=True)
class Crash:
    """pid: the thread's, as the kernel prints it, or None. address: what was accessed, ip: the instruction, both in
    hexadecimal without 0x, "" where not printed. module: the mapped file's base name, "" if none. signalled: the
    line comes with another one about the same crash where the kernel prints both."""

    pid: int | None
    comm: str
    cause: str
    module: str
    address: str
    ip: str
    signalled: bool = False


@dataclass(frozen=True, slots=True)
class Xid:
    """pci: as sysfs has it, 0000:3b:00.0. pid: None, process: "" where the driver does not know them. mig: the GPU
    instance, "" for the whole GPU."""

    pci: str
    xid: int
    pid: int | None
    process: str
    message: str
    mig: str = ""


def parse_crash(text: str) -> Crash | None:
    """A process that died of a fault, in the words of any of the architectures."""
    for form in _FORMS:
        if match := form.match(text):
            return _crash(match, signalled=False)
    if "unexpected fatal signal" not in text:
        return None
    match = _FATAL.match(text)
    return _crash(match, signalled=True) if match else None


def parse_xid(text: str) -> Xid | None:
    """`NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, message`, with or without the process."""
    match = _XID.match(text)
    if match is None:
        return None
    domain, bus, device, function, mig, number, rest = match.groups(default="")
    process = _XID_PROCESS.match(rest)
    pid, name, message = process.groups(default="") if process else ("", "", rest)
    return Xid(
        f"{int(domain, 16):04x}:{bus}:{device}.{function or 0}".lower(),
        int(number),
        int(pid) if pid else None,
        "" if name == "<unknown>" else name,
        message[:MESSAGE_LIMIT],
        mig,
    )


def _crash(match: re.Match[str], *, signalled: bool) -> Crash:
    found = match.groupdict(default="")
    pid = found["pid"]
    return Crash(
        int(pid) if pid else None,
        found["comm"],
        found.get("cause") or "segfault",
        found.get("module", ""),
        found.get("address", ""),
        found.get("ip", ""),
        signalled,
    )
