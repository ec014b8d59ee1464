"""What a cgroup path says about who lives there: unit, container, pod, batch job. Pure: nothing is read."""

import re
from dataclasses import dataclass, fields

from oomcast.podnames import PodName

_LONGEST = 4096
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"pod({_UID})\Z")
_KUBE_SLICE = re.compile(rf"(?:.*-)?kubepods(?:-(besteffort|burstable))?(?:-pod({_UID}))?\.slice\Z", re.DOTALL)
_UNIT = re.compile(r".+\.(?:service|scope|slice|mount|socket|swap)\Z", re.DOTALL)
_USER = re.compile(r"user(?:-([0-9]{1,10})\.slice|@([0-9]{1,10})\.service)\Z")
_SLURM_ROOT = re.compile(r"slurm(?:_[^/]+)?\Z|(?:[^/]+_)?slurmstepd\.scope\Z")
_SLURM_PART = re.compile(r"(uid|job|step)_([0-9A-Za-z.+-]{1,64})\Z")
_MACHINE = re.compile(r"(systemd-nspawn@.+\.service|machine-.+\.scope|.+\.libvirt-(?:qemu|lxc))\Z", re.DOTALL)
_VIRTUAL = re.compile(
    r"(?:machine-(?:qemu|lxc)-[0-9]+-(.+)\.scope|(?:(?:qemu|lxc)-[0-9]+-)?(.+)\.libvirt-(?:qemu|lxc))\Z", re.DOTALL
)
_LXC_OWN = re.compile(r"lxc(?:\.(?:payload|monitor|pivot)(?:\..*)?)?\Z", re.DOTALL)
_ESCAPES = re.compile(r"(?:\\x[0-9a-f]{2})+")
_RUNTIMES = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "crio",
    "libpod": "podman",
    "libpod-payload": "podman",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything is "" where the path does not say it.

    unit: the innermost systemd unit outside of a container or machine, unescaped; of a slice the slice itself.
    slice: the innermost slice on the way there. runtime: docker, containerd, crio, podman, lxc, nspawn, libvirt,
    slurm, or systemd where there is only a unit; "" also for a container whose path does not name its runtime.
    container_id: 64 hex digits, the innermost one. pod_uid: with dashes; a static pod's is 32 hex digits without.
    qos: guaranteed, burstable, besteffort. uid: number of the user in whose slice or session it is.
    """

    unit: str = ""
    slice: str = ""
    runtime: str = ""
    container_id: str = ""
    pod_uid: str = ""
    qos: str = ""
    slurm_job: str = ""
    slurm_step: str = ""
    lxc_name: str = ""
    uid: str = ""


def identify(path: str) -> Identity:
    """Reads a cgroup path ("/a/b"), whole or below some mount. Never fails: an unknown shape has no fields set."""
    reader = _Reader()
    for part in path[:_LONGEST].split("/"):
        if part:
            reader.read(part)
    return reader.identity()


def owner(identity: Identity, path: str, pod: PodName | None, container: str = "") -> str:
    """The name to count a cgroup's kills under: as stable as the path allows, readable, never empty.

    pod, container: what is known about `identity.pod_uid` and `identity.container_id` (see podnames). A container
    without a known name counts for its pod: its id would make a new owner of every restart.
    """
    short = identity.container_id[:12]
    if identity.pod_uid:
        if pod is None:
            return f"pod:{identity.pod_uid}" + (f"/{container or short}" if short else "")
        return f"{pod.namespace}/{pod.pod}" + (f"/{container}" if short and container else "")
    if identity.slurm_job:
        return f"slurm:{identity.slurm_job}"
    if short:
        # `podman run --cgroups=split` lives in the service that started it; only the service survives a restart.
        if identity.runtime == "podman" and identity.unit.endswith(".service"):
            return _unit_name(identity, path)
        return f"{identity.runtime or 'container'}:{short}"
    if identity.lxc_name:
        return f"lxc:{identity.lxc_name}"
    return _unit_name(identity, path) if identity.unit else path or "/"


def _unit_name(identity: Identity, path: str) -> str:
    machine = _VIRTUAL.match(identity.unit) if identity.runtime == "libvirt" else None
    if machine:
        # libvirt numbers a machine anew on every start.
        return f"libvirt:{machine[1] or machine[2]}"
    # Two users may run units of the same name, and so may the system.
    own = f"user@{identity.uid}.service"
    return f"user:{identity.uid}/{identity.unit}" if identity.uid and f"/{own}/" in path else identity.unit


def unescape(name: str) -> str:
    r"""systemd's \xNN, where the result can be printed. What cannot stays as it was."""
    return _ESCAPES.sub(_printable, name) if "\\x" in name else name


def _printable(escaped: re.Match[str]) -> str:
    try:
        text = bytes.fromhex(escaped[0].replace("\\x", "")).decode()
    except UnicodeDecodeError:
        return escaped[0]
    return text if text.isprintable() else escaped[0]


class _Reader:
    """Reads a path part by part, outermost first: what is further in wins, up to a container's own inside."""

    __slots__ = ("_found", "_inside", "_kube", "_last", "_slurm")

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._inside = False
        self._kube = False
        self._slurm = False
        self._last = ""

    def identity(self) -> Identity:
        found = self._found
        if found.get("unit") and "runtime" not in found:
            found["runtime"] = "systemd"
        return Identity(**{field.name: found.get(field.name, "") for field in fields(Identity)})

    def read(self, part: str) -> None:
        # containerd told to use cgroupfs under a kubelet that uses systemd makes "SLICE:cri-containerd:ID".
        pieces = part.split(":") if ":" in part else []
        if len(pieces) == 3 and _HEX64.match(pieces[2]) and self._pod(pieces[0]):
            self._enter(pieces[2], _RUNTIMES.get(pieces[1], ""))
        elif not (self._pod(part) or self._container(part) or self._inside):
            self._outside(part)
        self._last = part

    def _outside(self, part: str) -> None:
        """A part that belongs to the host, not to the inside of a container."""
        if not (self._batch(part) or self._lxc(part)):
            self._machine(part)
            self._unit(part)

    def _pod(self, part: str) -> bool:
        if match := _KUBE_SLICE.match(part):
            self._unit(part)
            self._kube_level(match[1] or "", match[2] or "")
            return True
        if part == "kubepods":
            self._kube = True
            self._kube_level("", "")
            return True
        if self._kube and self._last == "kubepods" and part in ("besteffort", "burstable"):
            self._kube_level(part, "")
            return True
        if self._kube and (match := _POD.match(part)):
            self._kube_level(self._found.get("qos", ""), match[1])
            return True
        return False

    def _kube_level(self, qos: str, uid: str) -> None:
        # A pod inside of a container starts afresh: the container around it is not its container.
        self._found["container_id"] = ""
        self._found.pop("runtime", None)
        self._found["pod_uid"] = uid.replace("_", "-")
        self._found["qos"] = qos or ("guaranteed" if uid else "")

    def _container(self, part: str) -> bool:
        base = part.removesuffix(".scope")
        if not _HEX64.match(base[-64:]):
            return False
        name = base[:-65]
        if len(base) > 64 and (base[-65] != "-" or not self._is_container(name, part != base)):
            return False
        self._enter(base[-64:], "docker" if not name and self._last == "docker" else _RUNTIMES.get(name, ""))
        if part != base:
            self._found["unit"] = part
        return True

    def _is_container(self, name: str, scope: bool) -> bool:
        # The monitor beside a container carries the container's id and is not the container.
        if name.endswith("conmon"):
            return False
        return name in _RUNTIMES or (scope and bool(self._found.get("pod_uid")))

    def _enter(self, container_id: str, runtime: str) -> None:
        self._found["container_id"] = container_id
        self._found["runtime"] = runtime
        self._inside = True

    def _batch(self, part: str) -> bool:
        if _SLURM_ROOT.match(part):
            self._slurm = True
            return False
        match = _SLURM_PART.match(part) if self._slurm else None
        if match is None:
            return False
        kind, value = match.groups()
        if kind == "uid":
            self._found["uid"] = value
        elif kind == "job":
            self._found |= {"slurm_job": value, "runtime": "slurm"}
        elif "slurm_job" in self._found:
            self._found["slurm_step"] = value
        return True

    def _lxc(self, part: str) -> bool:
        if part.startswith("lxc.payload."):
            name = part.removeprefix("lxc.payload.")
        elif self._last in ("lxc", "lxc.payload"):
            name = part
        else:
            return bool(_LXC_OWN.match(part))
        if name:
            self._found |= {"lxc_name": name, "runtime": "lxc"}
            self._inside = True
        return True

    def _machine(self, part: str) -> None:
        name = unescape(part)
        if not _MACHINE.match(name):
            return
        if _VIRTUAL.match(name):
            self._found["runtime"] = "libvirt"
        elif name.startswith("systemd-nspawn@"):
            self._found["runtime"] = "nspawn"
        self._found["unit"] = name
        self._inside = True

    def _unit(self, part: str) -> None:
        if user := _USER.match(part):
            self._found["uid"] = user[1] or user[2]
        if _UNIT.match(part):
            # systemd puts "_" before a unit whose name could be taken for one of the kernel's files.
            name = unescape(part.removeprefix("_"))
            self._found["unit"] = name
            if part.endswith(".slice"):
                self._found["slice"] = name
