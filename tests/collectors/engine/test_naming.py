"""What engines are called."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.engine.programs import Program, ending, unused_port
from collectors.engine.test_netns import HEAD, LEAF, TRIE, row
from collectors.host.trees import write_process
from fakes import FakeClock
from oomcast.contract import Context, Roots
from oomcast_collectors.engine.listeners import Listener
from oomcast_collectors.engine.naming import Named, Names, address_of, cut, literal_addresses
from oomcast_collectors.engine.settings import Endpoint

LOG = logging.getLogger("oomcast.engine")


def make(proc: Path = Path("/proc")) -> Names:
    return Names(Context(Roots(proc=proc), FakeClock(), LOG, lambda facts: None))


def at(url: str, name: str = "") -> Endpoint:
    return Endpoint.model_validate({"url": url, "name": name})


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine, 10.1.0.9, on which a service listens on 8000, a proxy on 8001 and somebody unknown on 8002."""
    (tmp_path / "self/net").mkdir(parents=True)
    rows = row("00000000", 8000, 11) + row("0100007F", 8001, 12) + row("0100007F", 8002, 13)
    (tmp_path / "self/net/tcp").write_text(HEAD + rows)
    (tmp_path / "self/net/fib_trie").write_text(TRIE + LEAF.format("10.1.0.9"))
    opens(tmp_path, 50, "python3", 11)
    opens(tmp_path, 51, "docker-proxy", 12)
    return tmp_path


def opens(proc: Path, pid: int, comm: str, *inodes: int, cgroup: str = "/system.slice/vllm.service") -> None:
    write_process(proc, pid, comm, cgroup=f"0::{cgroup}\n")
    (proc / str(pid) / "fd").mkdir()
    for number, inode in enumerate(inodes):
        (proc / str(pid) / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST", "10.1.0.9", "127.1.2.3", "user:secret@127.0.0.1"]
)
def test_a_local_engine_is_its_unit_and_port(proc: Path, host: str) -> None:
    if host == "127.1.2.3":
        rows = row("0302017F", 8000, 11)
        (proc / "self/net/tcp").write_text(HEAD + rows)
    assert make(proc).configured(at(f"http://{host}:8000")) == Named("vllm.service:8000", "/system.slice/vllm.service")


def test_the_name_in_the_settings_is_first(proc: Path) -> None:
    names = make(proc)
    assert names.configured(at("http://127.0.0.1:8000", "mine")) == Named("mine", "/system.slice/vllm.service")
    assert names.configured(at("http://node7:8000", "mine")) == Named("mine")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://node7:8000", "node7:8000"),
        ("http://10.9.9.9:8000/metrics", "10.9.9.9:8000"),
        ("https://node7/v1?token=secret", "node7:443"),
        ("http://me:secret@[fd00::7]:8000", "[fd00::7]:8000"),
        ("http://127.0.0.1:8001", "127.0.0.1:8001"),  # the proxy's socket says nothing of whose it is
        ("http://127.0.0.1:8002", "127.0.0.1:8002"),
    ],
)
def test_any_other_is_its_host_and_port(proc: Path, url: str, name: str) -> None:
    assert make(proc).configured(at(url))._replace(cgroup="") == Named(name)


def test_a_name_is_settled_when_somebody_listens(proc: Path) -> None:
    names = make(proc)
    assert names.configured(at("http://127.0.0.1:9000")) == Named("127.0.0.1:9000", settled=False)
    assert names.configured(at("http://10.1.0.9:9000", "mine")) == Named("mine", settled=False)
    with (proc / "self/net/tcp").open("a") as table:
        table.write(row("00000000", 9000, 14))
    opens(proc, 52, "llama-server", 14, cgroup="/llama.service")
    assert names.configured(at("http://127.0.0.1:9000")) == Named("llama.service:9000", "/llama.service")


def test_no_proc_is_told_and_costs_the_unit_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = make(tmp_path)
    assert [names.configured(at("http://127.0.0.1:8000")) for _ in range(2)] == [Named("127.0.0.1:8000")] * 2
    assert len(caplog.records) == 1


def test_a_found_engine_by_its_pod(proc: Path) -> None:
    uid, identity = "11111111-2222-3333-4444-555555555555", "ab" * 32
    cgroup = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{identity}.scope"
    opens(proc, 60, "vllm", 1, cgroup=cgroup)
    pods = proc / "pods"
    (pods / f"llm_server-0_{uid}/vllm").mkdir(parents=True)
    names = Names(Context(Roots(proc=proc, pods=pods), FakeClock(), LOG, lambda facts: None))
    found = names.found(Listener(60, "10.244.0.7", 8000, frozenset()))
    assert found == Named("llm/server-0/vllm:8000", cgroup)
    # It has ended since.
    assert names.found(Listener(61, "10.244.0.7", 8000, frozenset())) == Named("10.244.0.7:8000")
    assert names.found(Listener(61, "fd00::7", 8000, frozenset())) == Named("[fd00::7]:8000")


def test_equal_names_get_their_address(proc: Path) -> None:
    names = make(proc)
    assert names.take("a", "127.0.0.1:1") == "a"
    assert names.take("a", "127.0.0.1:2") == "a@127.0.0.1:2"
    assert names.take("a", "127.0.0.1:2") == "a@127.0.0.1:2#2"
    assert names.take("a", "127.0.0.1:2") == "a@127.0.0.1:2#3"
    names.give_back("a")
    names.give_back("never taken")
    assert names.take("a", "127.0.0.1:4") == "a"


def test_names_are_bounded_and_still_differ() -> None:
    long, other = "n" * 300 + "1", "n" * 300 + "2"
    assert cut("n" * 115, ":8000") == "n" * 115 + ":8000"
    assert len(cut(long, ":8000")) == 120
    assert cut(long, ":8000").endswith(":8000")
    assert cut(long) == cut(long) != cut(other)
    assert len(cut("\udcff" * 500)) == 120
    names = make()
    taken = {names.take(cut(long), f"{'h' * 300}:{port}") for port in range(3)}
    assert len(taken) == 3
    assert max(map(len, taken)) <= 120


def test_addresses_of_urls() -> None:
    assert address_of("http://u:p@Node7/x") == ("node7", 80)
    assert address_of("https://[::1]:8443") == ("::1", 8443)
    with pytest.raises(ValueError, match="Port could not be cast"):
        address_of("http://node7:http")
    assert literal_addresses("0.0.0.0") == literal_addresses("localhost") == {"127.0.0.1", "::1"}
    assert literal_addresses("0:0:0:0:0:0:0:1") == {"::1"}
    assert literal_addresses("node7") == literal_addresses("") == frozenset()


@pytest.fixture
def started() -> Iterator[list[Program]]:
    with ending() as programs:
        yield programs


def test_real_processes(started: list[Program], tmp_path: Path) -> None:
    port = unused_port()
    names = make()
    endpoint = at(f"http://127.0.0.1:{port}")
    assert names.configured(endpoint) == Named(f"127.0.0.1:{port}", settled=False)
    started.append(Program(tmp_path, "vllm", port=port))
    named = names.configured(endpoint)
    assert named.settled
    assert named.name.endswith(f":{port}")
    assert named == names.found(Listener(started[0].pid, "127.0.0.1", port, frozenset({"127.0.0.1"})))
    started[0].end()
    started.append(Program(tmp_path, "vllm", port=port))
    assert names.configured(endpoint) == named
