"""Messages about requests become series of the whole program, over reloads and a sudden end."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from e2e.program import Program, program, until

_OTHERS = ", ".join(
    f"{name}: {{enabled: false}}" for name in ("cgroup", "ebpf", "engine", "engine_log", "gpu", "host", "kernel_log")
)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
UP = 'collector="requests"'


def settings(path: Path) -> str:
    own = f"{{interval: 0.5, socket: '{path}', mode: '0600'}}"
    classes = "[{up_to: 512}, {up_to: 200000, e2e: 20}, {}]"
    http = 'http: {listen: "127.0.0.1:{port}"}'
    return f"{http}\nslo: {{classes: {classes}}}\ncollectors: {{{_OTHERS}, requests: {own}}}\n"


def send(path: Path, *messages: Mapping[str, object]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for keys in messages:
            known = {"v": 1, "engine": "llama", "prompt_tokens": 100, "status": 200, "trace_id": TRACE, **keys}
            sender.sendto(json.dumps(known).encode(), str(path))


def accepted(daemon: Program) -> float | None:
    return daemon.value("oomcast_request_messages_total", 'outcome="accepted"')


def test_messages_become_series(tmp_path: Path) -> None:
    path = tmp_path / "requests.sock"
    with program(tmp_path, settings(path)) as daemon:
        until(lambda: accepted(daemon) == 0)
        long = {"prompt_tokens": 131_500, "e2e_seconds": 30.5}
        failed = {"prompt_tokens": None, "status": 500, "empty": True, "trace_id": None, "lost": 2}
        send(path, {}, long, {**long, "trace_id": "0" * 31 + "1"}, failed, {"v": 2})
        until(lambda: accepted(daemon) == 4)
        engine = 'engine="llama"'
        assert daemon.value("oomcast_request_messages_total", 'outcome="version"') == 1
        assert daemon.value("oomcast_request_messages_lost_total") == 2
        responses = "oomcast_request_responses_total"
        assert daemon.value(responses, f'code="2xx",{engine},up_to="512"') == 1
        assert daemon.value(responses, f'code="2xx",{engine},up_to="200000"') == 2
        assert daemon.value(responses, f'code="5xx",{engine},up_to="unknown"') == 1
        assert daemon.value("oomcast_request_empty_responses_total", f'{engine},up_to="unknown"') == 1
        assert daemon.value("oomcast_request_untraced_responses_total", f'{engine},up_to="unknown"') == 1
        assert daemon.value("oomcast_request_prompt_tokens_count", engine) == 3
        assert daemon.value("oomcast_request_prompt_tokens_sum", engine) == 263_100
        assert daemon.value("oomcast_request_prompt_tokens_bucket", f'{engine},le="131072.0"') == 1
        assert daemon.value("oomcast_request_prompt_tokens_bucket", f'{engine},le="200000.0"') == 3
        violations = f'{engine},objective="e2e",source="requests",up_to="200000"'
        assert daemon.value("oomcast_slo_violations_total", violations) == 2
        assert _exemplars(daemon) == {"512.0": (TRACE, 100), "200000.0": ("0" * 31 + "1", 131_500)}
        until(lambda: daemon.value("oomcast_collector_up", UP) == 1)
        assert daemon.end()[0] == 0
        assert not path.exists()


def _exemplars(daemon: Program) -> dict[str, tuple[str, float]]:
    """Trace and tokens by bucket, as a strict parser of OpenMetrics reads them."""
    accept = "application/openmetrics-text; version=1.0.0"
    text = httpx.get(f"{daemon.url}/metrics", headers={"Accept": accept}).text
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    (family,) = [one for one in families if one.name == "oomcast_request_prompt_tokens"]
    found = {one.labels["le"]: one.exemplar for one in family.samples if one.exemplar}
    return {bound: (one.labels["trace_id"], one.value) for bound, one in found.items()}


def test_reloads(tmp_path: Path) -> None:
    first, second = tmp_path / "first.sock", tmp_path / "second.sock"
    with program(tmp_path, settings(first)) as daemon:
        until(lambda: accepted(daemon) == 0)
        send(first, {}, {})
        until(lambda: accepted(daemon) == 2)
        daemon.reload()
        send(first, {})
        until(lambda: accepted(daemon) == 3)

        daemon.settings(settings(second))
        daemon.reload()
        until(lambda: second.is_socket() and accepted(daemon) == 0)
        assert not first.exists()
        send(second, {})
        until(lambda: accepted(daemon) == 1)

        daemon.settings(settings(tmp_path / "absent" / "socket"))
        daemon.reload()
        until(lambda: daemon.value("oomcast_collector_up", UP) == 0)
        assert accepted(daemon) is None
        assert daemon.log.count('msg="collector failed: AddressError: ') == 1
        (tmp_path / "absent").mkdir()
        until(lambda: accepted(daemon) == 0)
        until(lambda: daemon.value("oomcast_collector_up", UP) == 1)


def test_a_second_daemon_leaves_the_first_alone(tmp_path: Path) -> None:
    path = tmp_path / "requests.sock"
    (tmp_path / "other").mkdir()
    with program(tmp_path, settings(path)) as daemon:
        until(lambda: accepted(daemon) == 0)
        with program(tmp_path / "other", settings(path)) as other:
            until(lambda: other.value("oomcast_collector_up", UP) == 0)
            assert "another process receives there" in other.log
            assert other.end()[0] == 0
        send(path, {})
        until(lambda: accepted(daemon) == 1)


def test_a_killed_daemons_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "requests.sock"
    with program(tmp_path, settings(path)) as daemon:
        until(lambda: accepted(daemon) == 0)
        send(path, {})
        until(lambda: accepted(daemon) == 1)
        daemon.process.kill()
        daemon.process.wait()
        assert path.is_socket()
        daemon.restart()
        until(lambda: accepted(daemon) == 0)
        send(path, {}, {})
        until(lambda: accepted(daemon) == 2)
        until(lambda: daemon.value("oomcast_collector_up", UP) == 1)
