"""The container image: built by the real build, and run as a careful operator would."""

import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import oomcast
from cgroups import parent
from deploy import composed
from deploy.containers import Rules, container, run, tracefs, value_of
from deploy.images import BASE, CERTIFICATES, ROOT, Images
from requires import needs

pytestmark = needs("buildah", "debian")

CONTAINERFILE = ROOT / "deploy/container/Containerfile"
PLAIN = f"localhost/oomcast:{oomcast.__version__}"
EBPF = f"{PLAIN}-ebpf"
URL = "http://127.0.0.1:19128"
METRICS = f"{URL}/metrics"
HOST = {"/": "/host"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """Both images, in a storage of their own."""
    made = Images(tmp_path_factory.mktemp("images"))
    try:
        made.add_base()
        began = time.monotonic()
        made.build()
        _say(f"built both images in {time.monotonic() - began:.0f} s")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def base(images: Images) -> Iterator[Path]:
    with images.mounted(BASE) as root:
        yield root


@pytest.fixture(scope="module")
def plain(images: Images) -> Iterator[Path]:
    with images.mounted(PLAIN) as root:
        yield root


@pytest.fixture(scope="module")
def settings(images: Images) -> Mapping[str, Any]:
    return images.settings(PLAIN)


def test_hadolint_is_content() -> None:
    argv: list[str | Path] = [Path(sys.executable).with_name("hadolint"), "--no-color", CONTAINERFILE]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_both_images_run_as_the_same_ordinary_user(images: Images) -> None:
    for name in (PLAIN, EBPF):
        found = images.settings(name)
        assert found["User"] == "10001:10001"
        assert list(found["ExposedPorts"]) == ["19128/tcp"]
        assert (found["Entrypoint"], found["Cmd"]) == (["/usr/bin/oomcast"], ["run"])
        assert found["Labels"]["org.opencontainers.image.version"] == oomcast.__version__
        assert found["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_byte_code_is_valid_whatever_the_times_of_files_are(plain: Path) -> None:
    sources = list((plain / "usr/lib/oomcast").rglob("*.py"))
    assert len(sources) > 500
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-311.pyc"
        # The second word: 1 is that it has a hash of its source instead of the time, and nobody compares it.
        assert struct.unpack("<I", compiled.read_bytes()[4:8]) == (1,), source


def test_it_is_made_of_what_runs_only(images: Images, plain: Path) -> None:
    found = {path.name.split("-")[0] for path in (plain / "usr/lib/oomcast").rglob("*.dist-info")}
    assert {"oomcast", "pydantic", "uvicorn"} <= found
    assert not found & {"pip", "setuptools", "wheel", "pytest", "hypothesis", "ruff", "mypy"}
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    for path in (plain / "usr/lib/oomcast").rglob("*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").partition("-")
        assert version == {**pinned, "oomcast": oomcast.__version__}[name.replace("_", "-").lower()]
    assert (plain / "usr/bin/oomcast").resolve(strict=False).name == "oomcast"
    assert not list((plain / "usr").rglob("bcc/libbcc.py"))
    with images.mounted(EBPF) as root:
        assert list((root / "usr").rglob("bcc/libbcc.py"))


def test_nothing_of_the_machine_that_built_it_is_in_it(images: Images, base: Path) -> None:
    # Addresses of the loopback are everybody's, and well-known ones are in the text of programs.
    servers = re.findall(r"^nameserver (?!127\.|::1)(\S+)", Path("/etc/resolv.conf").read_text(), re.MULTILINE)
    pip = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    addresses = [
        one for one in re.findall(r"'(.*)'", pip.stdout) for one in one.split() if re.match(r"\w+://|/opt", one)
    ]
    traces = [str(ROOT), *addresses]
    # It has all layers of the other.
    with images.mounted(EBPF) as root:
        assert _grep(root, *traces) == ""
        assert _grep(root / "etc", *servers) == ""
        # A trace that is there is found.
        assert _grep(root / "etc", "oomcast:x:10001") != ""
        bundle = root / CERTIFICATES.relative_to("/")
        assert bundle.read_bytes() == (base / CERTIFICATES.relative_to("/")).read_bytes()
        assert not (root / "etc/resolv.conf").exists() or not (root / "etc/resolv.conf").read_bytes()
        assert (root / "etc/apt/sources.list").read_bytes() == (base / "etc/apt/sources.list").read_bytes()
    steps = images.history(EBPF)
    assert not [step for step in steps if any(trace in step for trace in (*traces, *servers))]


def test_sizes(images: Images, base: Path, plain: Path) -> None:
    # Of the image on top of the others, which are its lower layers.
    packed = images.compressed(EBPF)
    with images.mounted(EBPF) as root:
        sizes = {BASE: _size(base), PLAIN: _size(plain), EBPF: _size(root)}
    for name, size in sizes.items():
        compressed = sum(packed[: images.layers(name)])
        _say(f"{name}: {size / 1e6:.0f} MB, {compressed / 1e6:.0f} MB compressed")
    assert sizes[PLAIN] - sizes[BASE] < 80e6
    assert sizes[EBPF] - sizes[BASE] < 400e6


@needs("cgroup")
def test_without_any_right_it_tells_of_the_host(tmp_path: Path, plain: Path, settings: Mapping[str, Any]) -> None:
    began = time.monotonic()
    with parent("image") as mine, container(tmp_path, plain, settings, Rules(binds=HOST)) as one:
        one.wait_for(f"{URL}/-/ready")
        _say(f"ready after {time.monotonic() - began:.2f} s")
        status = Path(f"/proc/{one.pid}/status").read_text()
        for line in ("Uid:\t10001\t10001\t10001\t10001", "NoNewPrivs:\t1", "Seccomp:\t2"):
            assert line in status
        assert re.findall(r"^Cap(?:Inh|Prm|Eff|Bnd|Amb):\t(\w+)", status, re.MULTILINE) == ["0" * 16] * 5
        mounts = [line.split() for line in Path(f"/proc/{one.pid}/mountinfo").read_text().splitlines()]
        writable = {at for _, _, _, _, at, options, *_ in mounts if "ro" not in options.split(",")}
        assert writable == {"/proc", "/dev"}

        leaf = mine.child("leaf")
        leaf.limit(50 << 20)
        with leaf.run("sleep", "300") as somebody:
            try:
                assert (
                    one.wait_for_series(METRICS, f'oomcast_cgroup_memory_effective_limit_bytes{{cgroup="{leaf.path}"}}')
                    == 50 << 20
                )
            finally:
                somebody.kill()
        page = one.fetch(METRICS)
        memory = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        assert memory is not None
        assert value_of(page, "oomcast_host_memory_total_bytes") == int(memory[1]) * 1024
        assert value_of(page, f'oomcast_build_info{{python="3.11.2",version="{oomcast.__version__}"}}') == 1
        assert one.log.count("level=error") == 0
        code, seconds = one.end()
    _say(f"ended {seconds:.2f} s after SIGTERM")
    assert (code, seconds < 3) == (0, True)


def test_it_serves_on_every_address_of_its_network(tmp_path: Path, plain: Path, settings: Mapping[str, Any]) -> None:
    with container(tmp_path, plain, settings, Rules(binds=HOST)) as one:
        one.wait_for(f"{URL}/-/ready")
        one.inside("ip", "address", "add", "192.0.2.1/32", "dev", "lo")
        for address in ("192.0.2.1", "[::1]"):
            assert "oomcast_build_info" in one.fetch(f"http://{address}:19128/metrics")


@needs("kmsg")
def test_as_compose_starts_it_the_kernels_log_is_read_too(
    tmp_path: Path, plain: Path, settings: Mapping[str, Any]
) -> None:
    service = composed.services()["oomcast"]
    with container(tmp_path, plain, settings, composed.rules(service)) as one:
        one.wait_for(f"{URL}/-/ready")
        assert one.wait_for_series(METRICS, 'oomcast_collector_up{collector="kernel_log"}') == 1
        assert one.wait_for_series(METRICS, 'oomcast_collector_up{collector="cgroup"}') == 1
        check = service["healthcheck"]["test"][1:]
        assert one.execute(*check).returncode == 0
        assert one.execute(*(word.replace(":19128", ":1") for word in check)).returncode != 0
        assert one.end()[0] == 0


@needs("kmsg")
@pytest.mark.parametrize(
    ("devices", "capabilities", "said"),
    [
        ([Path("/dev/kmsg")], [], "absent   /dev/kmsg: not permitted; needs CAP_SYSLOG"),
        ([], ["CAP_SYSLOG"], "absent   /dev/kmsg: does not exist"),
    ],
)
def test_the_kernels_log_takes_a_device_and_a_capability(
    tmp_path: Path, plain: Path, settings: Mapping[str, Any], devices: list[Path], capabilities: list[str], said: str
) -> None:
    if devices and Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() != "1":
        pytest.skip("kernel.dmesg_restrict is off: everybody may read the log here")
    environment = {"OOMCAST_PATHS__DEV": "/dev"}
    rules = Rules("0:0", capabilities, devices=devices, binds=HOST, environment=environment)
    status, printed = run(tmp_path, plain, settings, rules, "check")
    assert status == 0
    assert f"\nkernel_log  {said}" in printed


@needs("ebpf")
@pytest.mark.parametrize(
    ("capabilities", "system_calls", "probes"),
    [
        (["CAP_BPF", "CAP_PERFMON"], ["bpf", "perf_event_open"], ["crashes", "oom_kills"]),
        (["CAP_SYS_ADMIN", "CAP_SYS_PTRACE"], [], ["allocations", "crashes", "oom_kills"]),
    ],
    ids=["kernel", "programs"],
)
def test_ebpf_has_what_it_takes(
    tmp_path: Path, images: Images, capabilities: list[str], system_calls: list[str], probes: list[str]
) -> None:
    """Root and these capabilities, on a read-only root. Profiles before docker 24 ask for CAP_SYS_ADMIN for bpf()."""
    environment = {"OOMCAST_COLLECTORS__EBPF__ENABLED": "true", "OOMCAST_COLLECTORS__EBPF__PROBES": str(probes)}
    with tracefs(tmp_path) as tracing, images.mounted(EBPF) as root:
        binds = {**HOST, str(tracing): "/sys/kernel/tracing"}
        rules = Rules("0:0", capabilities, system_calls, (), binds, environment, host_pids=True, memory=1 << 30)
        status, printed = run(tmp_path, root, images.settings(EBPF), rules, "check", "--ebpf")
    assert status == 0, printed
    assert re.findall(r"^ebpf  ok      (\w+):", printed, re.MULTILINE) == probes


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")


def _grep(root: Path, *texts: str) -> str:
    argv = ["grep", "-rlF", "-e", "\n".join(texts), str(root)]
    done = subprocess.run(argv if texts else ["false"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def _size(root: Path) -> int:
    return sum(entry.lstat().st_size for entry in root.rglob("*") if not entry.is_symlink() and entry.is_file())
