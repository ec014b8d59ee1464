"""Whatever is sent, it is counted once and the intake goes on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.requests.support import Bench, Sender, message, received, settle
from oomcast_collectors.requests import RequestsCollector

_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["open", "llama"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_KEYS = st.sampled_from(
    (
        *("v", "engine", "prompt_tokens", "output_tokens", "cached_tokens", "status", "empty", "trace_id", "user"),
        *("tenant", "retries", "breaker", "ttft_seconds", "e2e_seconds", "lost", "other"),
    )
)
_VALID = json.dumps(message()).encode()


@st.composite
def _mutated(draw: st.DrawFn) -> bytes:
    """A valid message with bytes replaced, removed or inserted."""
    raw = bytearray(_VALID)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=4))
    return bytes(raw)


def _pairs(pairs: list[tuple[str, Any]]) -> bytes:
    """An object whose keys may be there more than once; NaN and Infinity as Python writes them."""
    known = list(message().items()) + pairs
    return ("{" + ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in known) + "}").encode()


_DATAGRAMS = st.one_of(
    st.binary(max_size=3000),
    _mutated(),
    st.lists(st.tuples(_KEYS, _ODD), max_size=4).map(_pairs),
    st.integers(0, len(_VALID)).map(lambda end: _VALID[:end]),
    st.integers(2000, 60_000).map(lambda size: _VALID.ljust(size)),
    st.tuples(st.sampled_from([b"[", b'{"v":', b"[[],", b'{"engine":[']), st.integers(1, 2000)).map(
        lambda deep: (deep[0] * deep[1])[:2048]
    ),
)


@pytest.fixture(scope="module")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RequestsCollector, Sender]]:
    made = Bench(tmp_path_factory.mktemp("fuzz"))
    collector, sender = made.receiving(rate=1_000_000, engines=8)
    sender.message()  # before names that are made up take all places
    settle(collector, sender)
    yield collector, sender
    made.close()


@given(datagrams=st.lists(_DATAGRAMS, min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_each_datagram_is_counted_once(receiving: tuple[RequestsCollector, Sender], datagrams: list[bytes]) -> None:
    collector, sender = receiving
    before = received(collector)
    for datagram in datagrams:
        sender.raw(datagram)
    sender.raw(_VALID)
    after = settle(collector, sender)
    assert after["accepted"] > before["accepted"]
    assert after.keys() <= {"accepted", "invalid", "version", "too_many_engines"}
    assert all(after[outcome] >= count for outcome, count in before.items())
    assert len({dict(one.series.labels).get("engine") for one in collector.collect().samples}) <= 9
