"""Engines that restart, go away, are many, or live in a pod."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.engine.machines import LOG, SGLANG, VLLM, Bench, bench, expected, look
from collectors.engine.programs import unused_port
from oomcast.clock import SystemClock
from oomcast.contract import Context, Roots
from oomcast_collectors.engine import discovery
from oomcast_collectors.engine.discovery import Discovery, FoundEngine
from oomcast_collectors.engine.naming import Names
from requires import needs

__all__ = ["bench"]


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
