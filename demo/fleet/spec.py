"""What a node of the fleet is to do, and how it differs from others."""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from incident.memory import BLOCK, BYTES_PER_TOKEN, FIRST_TOKENS, RESERVED, TOTAL, WEIGHTS, WORKSPACE
from incident.node import BLOCKS, USERS
from incident.story import TEMPLATE, TURNS, lengths_above_64k, lengths_above_128k
from simulator.trace import MOONCAKE_SPAN

Play = Literal["incident", "healthy", "no_reuse", "restart", "load", "pool", "page_cache"]
PLAYS: tuple[Play, ...] = get_args(Play)

_CONVERSATIONS = (TURNS, 12, 11)
"""Turns of those in the trace that have more than ten, and prompts of less than 9,000 tokens."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One node.

    incident: users, then jobs with long prompts until memory is exhausted; a new engine comes after it. healthy: the
    users alone. no_reuse: users whose prompts share nothing. restart: the engine ends, and a new one loads. load: a
    process comes that fills a second GPU. pool: an engine that reserved its GPU up to 99.9 % and is busy. page_cache:
    somebody writes a file in the engine's cgroup.

    turns: of the conversation that the users repeat. calm: seconds before whatever the play is about. jobs: tokens of
    their prompts, in the order of their coming. apart: virtual seconds from one to the next. speed: virtual seconds of
    the engine in a second. down, loading: seconds in which a new engine is not there, and loads. load_grace,
    hit_window: settings of the daemon, seconds. cgroup: a directory that the engine joins, with a limit on memory; ""
    for none. settings: more of the daemon's, as JSON; of `collectors` whole ones.
    """

    name: str
    play: Play
    users: int = USERS
    turns: int = TURNS
    calm: float = 22.0
    jobs: tuple[int, ...] = ()
    apart: float = 0.0
    speed: float = 9.0
    down: float = 4.0
    loading: float = 6.0
    load_grace: float = 0.0
    hit_window: float = 10.0
    cgroup: str = ""
    settings: str = "{}"

    @property
    def first_tokens(self) -> int:
        """Of the KV cache, committed at the start: enough for the users."""
        return FIRST_TOKENS * max(self.users, USERS) // USERS

    def text(self) -> str:
        return json.dumps(asdict(self))


def parsed(text: str) -> Spec:
    """What `text()` wrote."""
    values = json.loads(text)
    return Spec(**{**values, "jobs": tuple(values["jobs"])})


def drawn(name: str, seed: int, *, load_grace: float = 0.0, hit_window: float = 10.0) -> Spec:
    """An incident with everything about it drawn from the seed: who asks, when the jobs come, which, and how fast."""
    chance = random.Random(seed)
    jobs = chance.sample(lengths_above_64k(), chance.randint(2, 3))
    jobs += chance.sample(lengths_above_128k(), chance.randint(6, 9))
    chance.shuffle(jobs)
    while not _exhaust(jobs):
        chance.shuffle(jobs)
    return Spec(
        name,
        "incident",
        users=chance.randint(2, 4),
        turns=chance.choice(_CONVERSATIONS),
        # Longer than a process that has come may load.
        calm=load_grace + chance.uniform(0, 6),
        jobs=tuple(jobs),
        apart=chance.uniform(0, 12),
        speed=chance.uniform(11, 14),
        down=chance.uniform(3, 6),
        load_grace=load_grace,
        hit_window=hit_window,
    )


def _exhaust(jobs: Sequence[int]) -> bool:
    """Whether memory ends with those that get in: the first that the pool has no room for waits, all others behind."""
    # While the users' last prompts are still there.
    most, admitted = BLOCKS * BLOCK - FIRST_TOKENS, 0
    for tokens in jobs:
        if admitted + tokens > most:
            break
        admitted += tokens - TEMPLATE * MOONCAKE_SPAN
    return admitted * BYTES_PER_TOKEN > TOTAL - RESERVED - WEIGHTS - WORKSPACE
