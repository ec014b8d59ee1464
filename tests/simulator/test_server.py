"""The engine's server, asked as the daemon asks it."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from collectors.engine.kind_pages import reading
from e2e.stack import fetch
from oomcast_collectors.engine.kinds import KINDS
from simulated import Seen, request
from simulator import Server


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server(Seen(4).engine)
    served.start()
    yield served
    served.stop()


def test_what_it_says(server: Server) -> None:
    assert fetch(f"{server.url}/metrics").encode() == server.engine.page()
    assert fetch(f"{server.url}/health") == ""
    found = reading(fetch(f"{server.url}/metrics"))
    for extra in KINDS["vllm"].extras:
        found = extra.apply(json.loads(fetch(server.url + extra.path)), found)
    assert (found.model, found.max_model_len, found.version) == ("sim", 16, "0.32.0")


def test_what_it_does_not_know(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError) as told:
        fetch(f"{server.url}/v1/completions")
    told.value.close()
    assert told.value.code == 404


def test_it_dies_and_comes_back_at_the_same_port(server: Server) -> None:
    server.engine.submit(request(4, 1))
    server.engine.advance(10)
    server.stop()
    with pytest.raises(urllib.error.URLError, match="refused"):
        fetch(f"{server.url}/health")
    server.stop()
    url, server.engine = server.url, Seen(4).engine
    server.start()
    assert server.url == url
    assert 'request_success_total{engine="0",finished_reason="length",model_name="sim"} 0.0' in fetch(f"{url}/metrics")


def test_a_port_that_is_taken_is_an_error(server: Server) -> None:
    other = Server(server.engine, server.port)
    with pytest.raises(OSError, match="in use"):
        other.start()
    other.stop()
