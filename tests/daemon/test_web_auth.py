"""Who may speak to the server: basic authentication and what it costs whom."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice

import bcrypt
import httpx
import pytest

from daemon.web_harness import TEXT, Running, app, serving
from oomcast.webconfig import WebConfig


def _hash(password: str, rounds: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds)).decode()


def test_everything_needs_a_password_when_users_are_configured() -> None:
    config = WebConfig(users={"al": _hash("pa:ss"), "zoë": _hash("x" * 72)})
    with serving(app(config=config)) as running, httpx.Client(base_url=running.url) as client:
        for path in ("/", "/metrics", "/-/healthy", "/-/ready", "/nothing"):
            refused = client.get(path)
            assert (refused.status_code, refused.text) == (401, "Unauthorized\n")
            assert refused.headers["www-authenticate"] == 'Basic realm="oomcast", charset="UTF-8"'
            assert refused.headers["x-content-type-options"] == "nosniff"
        assert client.get("/metrics", auth=("al", "pa:ss")).content == TEXT
        assert client.get("/metrics", auth=("zoë", "x" * 72)).status_code == 200
        # As with every bcrypt implementation, what follows the 72nd byte was never part of the hash.
        assert client.get("/metrics", auth=("zoë", "x" * 90)).status_code == 200
        for wrong in (("al", "pa:s"), ("al", ""), ("bob", "pa:ss"), ("", ""), ("al", "x" * 9000), ("al", "pa:ss\0")):
            assert client.get("/metrics", auth=wrong).status_code == 401


@pytest.mark.parametrize(
    "value", ["Basic", "Basic !!!", "Basic YWw=", "Bearer YWw6cGE=", "Basic YWw6cGE", "basic \xff", "Basic ////"]
)
def test_garbage_credentials_are_401(value: str) -> None:
    with serving(app(config=WebConfig(users={"al": _hash("pa")}))) as running:
        response = httpx.get(running.url, headers=[(b"authorization", value.encode("latin-1"))])
        assert response.status_code == 401
        twice = [("authorization", "Basic YWw6cGE="), ("authorization", "Basic YWw6cGE=")]
        assert httpx.get(running.url, headers=twice).status_code == 401
        assert httpx.get(running.url, headers=twice[:1]).status_code == 200


class Hashing:
    """bcrypt itself, counted; it waits while the gate is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()
        self._real = bcrypt.checkpw
        monkeypatch.setattr(bcrypt, "checkpw", self._check)

    def _check(self, password: bytes, hashed: bytes) -> bool:
        self.count += 1
        assert self.gate.wait(10)
        return self._real(password, hashed)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    return Hashing(monkeypatch)


def test_verdicts_are_remembered_until_the_users_change(hashing: Hashing) -> None:
    application = app(config=WebConfig(users={"al": _hash("old")}))
    with serving(application) as running, httpx.Client(base_url=running.url) as client:
        for _ in range(3):
            assert client.get("/metrics", auth=("al", "old")).status_code == 200
            assert client.get("/metrics", auth=("al", "bad")).status_code == 401
            assert client.get("/metrics", auth=("nobody", "bad")).status_code == 401
        assert hashing.count == 3

        async def change() -> None:
            application.configure(WebConfig(users={"al": _hash("new")}))

        running.call(change())
        assert client.get("/metrics", auth=("al", "old")).status_code == 401
        assert client.get("/metrics", auth=("al", "new")).status_code == 200
        for attempt in range(150):
            client.get("/metrics", auth=("al", str(attempt)))
        before = hashing.count
        assert client.get("/metrics", auth=("al", "new")).status_code == 200
        assert hashing.count == before, "guessing pushed the known user out"
        client.get("/metrics", auth=("al", "0"))
        assert hashing.count == before + 1, "wrong verdicts are kept without a bound"


def _ask(running: Running, user: str, password: str) -> int:
    return httpx.get(running.url, auth=(user, password)).status_code


def test_hashing_blocks_nobody_and_is_done_once_for_all(hashing: Hashing) -> None:
    users = {"al": _hash("slow"), "quick": _hash("quick")}
    with serving(app(config=WebConfig(users=users))) as running, ThreadPoolExecutor(4) as clients:
        assert _ask(running, "quick", "quick") == 200
        hashing.gate.clear()
        waiting = [clients.submit(_ask, running, "al", "slow") for _ in range(4)]
        assert [_ask(running, "quick", "quick") for _ in range(3)] == [200, 200, 200]
        assert not any(future.done() for future in waiting)
        hashing.gate.set()
        assert [future.result() for future in waiting] == [200] * 4
    assert hashing.count == 2


def test_a_flood_of_guesses_is_turned_away_while_known_users_go_on(hashing: Hashing) -> None:
    with serving(app(config=WebConfig(users={"al": _hash("known")}))) as running, ThreadPoolExecutor(24) as clients:
        assert _ask(running, "al", "known") == 200
        hashing.gate.clear()
        guesses = [clients.submit(_ask, running, "al", str(number)) for number in range(24)]
        turned_away = [future.result() for future in islice(as_completed(guesses), 8)]
        assert turned_away == [429] * 8
        assert _ask(running, "al", "known") == 200
        assert _ask(running, "al", "another") == 429
        hashing.gate.set()
        assert sorted(future.result() for future in guesses) == [401] * 16 + [429] * 8


def test_a_request_that_waits_for_its_hash_does_not_delay_the_stop(
    hashing: Hashing, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(app(config=WebConfig(users={"al": _hash("known")}))) as running, ThreadPoolExecutor(1) as clients:
        hashing.gate.clear()
        waiting = clients.submit(_ask, running, "al", "known")
        while not hashing.count:
            time.sleep(0.01)
        began = time.monotonic()
        running.call(running.server.stop(0.2))
        assert time.monotonic() - began < 1.5
        with pytest.raises(httpx.TransportError):
            waiting.result()
        hashing.gate.set()
    assert caplog.records == []
