"""What a test may need of the machine beyond Python, and what happens where it is not there.

A test says `@needs("cgroup")` (or `pytestmark = needs("cgroup")`, or `require("cgroup")` half way through). Where that
is missing it skips and says why; a machine that must have it lists it in OOMCAST_REQUIRE ("cgroup,prometheus"), and
there it fails, so that a broken set-up cannot pass as a skip.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from host import ENGINES, PICTURES, VIRTIOFSD, cache, kernels, memory_mount, rustc, text, vm_kernel

VARIABLE = "OOMCAST_REQUIRE"


def needs(*names: str) -> pytest.MarkDecorator:
    """The mark for a test that runs only where all `names` are available. Raises ValueError on an unknown name."""
    for name in names:
        _known(name)
    return pytest.mark.needs(*names)


def require(name: str) -> None:
    """Skips the running test if `name` is missing here, or fails it if OOMCAST_REQUIRE lists it."""
    reason = missing(name)
    if reason is None:
        return
    if name in required(os.environ):
        pytest.fail(f"{VARIABLE} lists {name}, but: {reason}", pytrace=False)
    pytest.skip(f"needs {name}: {reason}")


def required(environ: Mapping[str, str]) -> frozenset[str]:
    """The names in OOMCAST_REQUIRE. Raises ValueError on one that is unknown: a typo must not switch a check off."""
    names = frozenset(name.strip() for name in environ.get(VARIABLE, "").split(",") if name.strip())
    for name in names:
        _known(name)
    return names


@functools.cache
def missing(name: str) -> str | None:
    """Why `name` is not available on this machine, or None if it is. Probed once per process."""
    return PROBES[_known(name)]()


def main() -> int:
    """Prints a line for each name with what this machine can do."""
    for name in PROBES:
        sys.stdout.write(f"{name}: {missing(name) or _available(name)}\n")
    return 0


def _available(name: str) -> str:
    if name != "prometheus":
        return "available"
    # Imported here, as that module looks for them with the help of this one.
    from e2e.prometheuses import found

    return f"available ({', '.join(one.version for one in found())})"


def _known(name: str) -> str:
    if name not in PROBES:
        raise ValueError(f"unknown requirement {name!r}, known are: {', '.join(PROBES)}")
    return name


def _cgroup() -> str | None:
    if os.geteuid() != 0:
        return "making cgroups takes root"
    mount = memory_mount()
    if mount is None:
        return "no cgroup hierarchy with the memory controller is mounted"
    version, root = mount
    child = root / f"oomcast-probe-{os.getpid()}"
    try:
        child.mkdir()
    except OSError as error:
        return f"no cgroup can be made below {root}: {error.strerror}"
    # A v2 child has these files only if its parent delegates the controller; changing that is not a probe's business.
    limit = child / ("memory.limit_in_bytes" if version == 1 else "memory.max")
    reason = None if limit.exists() else f"a cgroup below {root} gets no {limit.name}"
    child.rmdir()
    return reason


def _prometheus() -> str | None:
    return _commands("prometheus", "promtool", "prometheus-alertmanager", "amtool")


def _kmsg() -> str | None:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDWR | os.O_NONBLOCK))
    except OSError as error:
        return f"/dev/kmsg cannot be read and written: {error.strerror}"
    if text(Path("/proc/sys/debug/exception-trace")).strip() != "1":
        return "debug.exception-trace is off, so crashes are not in the kernel's log"
    return None


def _ebpf() -> str | None:
    if os.uname().machine != "x86_64":
        return f"the probes know the registers of x86-64, this is {os.uname().machine}"
    if os.geteuid() != 0:
        return "loading eBPF programs takes root"
    # Debian's python3-bpfcc; the bcc of the Python package index is something else.
    if not Path("/usr/lib/python3/dist-packages/bcc/libbcc.py").exists():
        return "BCC (the package python3-bpfcc) is not installed"
    return None


def _vm() -> str | None:
    if os.uname().machine != "x86_64":
        return f"the virtual machine is an x86-64 one, this is {os.uname().machine}"
    if os.geteuid() != 0:
        return "sharing all files with a virtual machine takes root"
    absent = _commands("qemu-system-x86_64", "busybox")
    if absent:
        return absent
    if not any(path.exists() for path in VIRTIOFSD):
        return f"no virtiofsd at {' or '.join(map(str, VIRTIOFSD))}"
    return None if vm_kernel() else f"no kernel in {kernels()}: scripts/setup vm fetches one"


def _engines() -> str | None:
    # Written last, so what is half installed is not there.
    made = (ENGINES / ".oomcast-engines").exists()
    return None if made else "no inference engine: scripts/setup engines has not made .venv-engines"


def _pictures() -> str | None:
    absent = _commands("node", "chromium")
    if absent:
        return absent
    # Written last, so what is half built is not there.
    built = (PICTURES / "dist" / ".oomcast-built").exists()
    return None if built else "nothing draws dashboards: scripts/setup pictures has not built it"


def _cc() -> str | None:
    absent = _commands("cc")
    if absent:
        return absent
    # A compiler without the C library's headers is as good as none.
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-o", "/dev/null", "-"],
        input="#include <pthread.h>\nint one(void) { return pthread_self() != 0; }\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return None if done.returncode == 0 else f"cc cannot compile: {done.stderr.strip()[-200:]}"


def _rustc() -> str | None:
    compiler = rustc()
    if compiler is None:
        return "rustc is neither on the PATH nor in ~/.cargo/bin"
    # rustup's is there without a toolchain as well, and says so.
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False, timeout=60)
    return None if done.returncode == 0 else f"{compiler} does not run: {done.stderr.strip()[-200:]}"


def _netns() -> str | None:
    absent = _commands("ip", "nsenter", "unshare")
    if absent:
        return absent
    veth = ["unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "two"]
    done = subprocess.run(veth, capture_output=True, text=True, check=False, timeout=60)
    return None if done.returncode == 0 else f"no network namespace can be made: {done.stderr.strip()[-200:]}"


def _helm() -> str | None:
    absent = [name for name in ("helm", "kubectl") if not (cache() / "helm" / name).exists()]
    if absent:
        return f"no {' and no '.join(absent)} in {cache() / 'helm'}: scripts/setup deploy fetches them"
    return _python_commands("check-jsonschema", "kubernetes-validate", "hadolint")


def _debian() -> str | None:
    if os.geteuid() != 0:
        return "booting a Debian in a container takes root"
    absent = _commands("systemd-nspawn", "systemd-analyze")
    if absent:
        return absent
    # Written last, so what is half unpacked is not there.
    unpacked = all((cache() / "debian" / f"{name}.from").exists() for name in ("base", "node"))
    return None if unpacked else f"no small Debians in {cache() / 'debian'}: scripts/setup deploy makes them"


def _buildah() -> str | None:
    if os.geteuid() != 0:
        return "building and running images as the tests do takes root"
    return _commands("buildah", "crun", "nsenter", "ip") or _python_commands("hadolint")


def _python_commands(*names: str) -> str | None:
    absent = [name for name in names if not Path(sys.executable).with_name(name).exists()]
    return f"not in the environment: {', '.join(absent)} (scripts/setup deploy)" if absent else None


def _commands(*names: str) -> str | None:
    absent = [name for name in names if shutil.which(name) is None]
    return f"not on the PATH: {', '.join(absent)}" if absent else None


PROBES: Mapping[str, Callable[[], str | None]] = MappingProxyType(
    {
        "cgroup": _cgroup,
        "kmsg": _kmsg,
        "prometheus": _prometheus,
        "ebpf": _ebpf,
        "vm": _vm,
        "engines": _engines,
        "pictures": _pictures,
        "cc": _cc,
        "rustc": _rustc,
        "netns": _netns,
        "helm": _helm,
        "debian": _debian,
        "buildah": _buildah,
    }
)

if __name__ == "__main__":
    raise SystemExit(main())
