"""A vLLM with the middleware: what it tells of each request is what vLLM counts."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from daemon.client_receiver import Receiver
from e2e.program import until
from engines.load import SECONDS, tokens
from engines.server import Vllm, vllm
from requires import needs

pytestmark = needs("engines")

PACKAGE = Path(__file__).parents[2] / "daemon/oomcast/client"
CONTEXT = 2048
BLOCK = 128
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
COUNTS = {
    "prompt": "vllm:prompt_tokens_total",
    "output": "vllm:generation_tokens_total",
    "cached": "vllm:prefix_cache_hits_total",
}


class Reporting(NamedTuple):
    engine: Vllm
    receiver: Receiver

    def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        body = {"model": "tiny", "ignore_eos": True, **body}
        with httpx.Client(timeout=SECONDS, trust_env=False, verify=False) as client:
            return client.post(self.engine.url + path, json=body, headers=headers)

    def message(self) -> dict[str, Any]:
        """The one message that has come."""
        until(self.receiver.waits)
        (message,) = self.receiver.read()
        return message

    def counts(self) -> dict[str, float]:
        return {name: self.engine.total(metric) for name, metric in COUNTS.items()}


@pytest.fixture(scope="module")
def reporting(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[Reporting]:
    directory = tmp_path_factory.mktemp("reporting")
    # Nothing else of the daemon is there for the engine to import.
    (directory / "path/oomcast").mkdir(parents=True)
    (directory / "path/oomcast/client").symlink_to(PACKAGE)
    (directory / "template").write_text(TEMPLATE)
    receiver = Receiver(directory / "socket")
    environment = {
        "PYTHONPATH": str(directory / "path"),
        "OOMCAST_REQUEST_SOCKET": str(receiver.path),
        "OOMCAST_ENGINE": "tiny",
    }
    flags = (
        f"--max-model-len={CONTEXT}",
        "--middleware=oomcast.client.asgi.Reports",
        "--enable-force-include-usage",
        "--enable-prompt-tokens-details",
        f"--chat-template={directory / 'template'}",
    )
    with vllm(directory, tiny, *flags, environment=environment) as engine:
        yield Reporting(engine, receiver)
    receiver.close()


CHAT = {"messages": [{"role": "user", "content": "Tell me. " * 40}]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": tokens(300, 1), "max_tokens": 16}),
        ("/v1/completions", {"prompt": "Once upon a time " * 30, "max_tokens": 9, "user": "alice"}),
        ("/v1/chat/completions", {**CHAT, "max_completion_tokens": 12}),
        ("/v1/responses", {"input": "Tell me. " * 40, "max_output_tokens": 12}),
    ],
)
def test_tokens_are_those_that_vllm_counts(reporting: Reporting, path: str, body: dict[str, Any], stream: bool) -> None:
    before = reporting.counts()
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "x-stainless-retry-count": "1"}
    response = reporting.post(path, {**body, "stream": stream}, **headers)
    assert response.status_code == 200
    message = reporting.message()
    gained = {name: value - before[name] for name, value in reporting.counts().items()}
    assert gained["prompt"] > 0
    assert {name: message[f"{name}_tokens"] for name in COUNTS} == gained
    assert message["status"] == 200
    assert message["empty"] is False
    assert message["trace_id"] == TRACE
    assert message["retries"] == 1
    assert (message["user"], message["tenant"]) == ("user" in body, False)
    assert ("ttft_seconds" in message) == stream
    assert 0 < message.get("ttft_seconds", 0.001) <= message["e2e_seconds"]


def test_a_prompt_that_is_known_already_is_told_as_cached(reporting: Reporting) -> None:
    prompt = tokens(3 * BLOCK + 5, 7)
    for cached in (0, 3 * BLOCK):
        reporting.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
        message = reporting.message()
        assert (message["prompt_tokens"], message["cached_tokens"]) == (len(prompt), cached)


def test_a_prompt_beyond_the_longest_is_an_error_of_that_length(reporting: Reporting) -> None:
    before = reporting.counts()
    assert reporting.post("/v1/completions", {"prompt": tokens(CONTEXT + 1, 2), "max_tokens": 1}).status_code == 400
    message = reporting.message()
    assert (message["status"], message["prompt_tokens"], message["empty"]) == (400, CONTEXT + 1, True)
    assert "output_tokens" not in message

    assert reporting.post("/v1/completions", {"prompt": "x" * (CONTEXT + 1), "max_tokens": 1}).status_code == 400
    assert "prompt_tokens" not in reporting.message()
    assert reporting.counts() == before


def test_a_client_that_leaves_ends_its_request(reporting: Reporting) -> None:
    request = {"model": "tiny", "prompt": tokens(50, 3), "max_tokens": 1900, "ignore_eos": True, "stream": True}
    body = json.dumps(request).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with socket.create_connection(("127.0.0.1", reporting.engine.port)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        assert connection.recv(12) == b"HTTP/1.1 200"
    message = reporting.message()
    assert (message["status"], message["prompt_tokens"]) == (499, 50)


def test_an_engine_that_dies_in_the_middle_of_an_answer_is_told_as_a_500(reporting: Reporting) -> None:
    body = {"model": "tiny", "prompt": tokens(60, 4), "max_tokens": 1900, "ignore_eos": True, "stream": True}
    with (
        httpx.Client(timeout=SECONDS, trust_env=False, verify=False) as client,
        client.stream("POST", f"{reporting.engine.url}/v1/completions", json=body) as response,
    ):
        assert response.status_code == 200
        lines = response.iter_lines()
        # The first tokens may be the beginnings of characters.
        assert any(line.startswith("data: {") and json.loads(line[6:])["choices"][0]["text"] for line in lines)
        reporting.engine.kill_core()
        for _ in lines:
            pass
    message = reporting.message()
    assert (message["status"], message["prompt_tokens"], message["empty"]) == (500, 60, False)
