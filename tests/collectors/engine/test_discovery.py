"""Finding engines: real servers in real processes, and which of them are asked."""

import time
from pathlib import Path

import pytest

from collectors.engine.machines import SGLANG, VLLM, Bench, bench, expected, look

__all__ = ["bench"]


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


@pytest.mark.parametrize(("page", "found"), [(VLLM, 1), ("written/triton-two-models.prom", 0)])
def test_a_guessed_port_in_the_settings_is_only_its_kinds(bench: Bench, page: str, found: int) -> None:
    """A Triton at 8000 has its metrics on 8002; what else may be there has nothing to do with it."""
    try:
        program = bench.start(page, port=8002)
    except IndexError:
        pytest.skip("something else listens on 8002")
    assert look(bench.discovery("http://127.0.0.1:8000")) == [expected("vllm", program)] * found
    assert look(bench.discovery()) != []
