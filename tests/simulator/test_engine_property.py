"""What holds of any engine under any requests."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import Config, Cost, Engine, Finished, Request

LONGEST, SIZE = 24, 4

requests = st.lists(
    st.builds(
        Request,
        st.sampled_from([0.0, 0.5, 3.0, 20.0]),
        st.integers(1, LONGEST + 2),
        st.integers(1, 12),
        st.lists(st.integers(0, 2), max_size=4).map(tuple),
        st.just(8),
    ),
    max_size=25,
).map(lambda some: sorted(some, key=lambda one: one.arrival))

configs = st.builds(
    Config,
    st.integers(LONGEST // SIZE + 1, 20),
    st.just(SIZE),
    st.just(LONGEST),
    st.integers(1, 6),
    st.integers(1, 30),
    cost=st.just(Cost(1, 0.01, 0.001, 0.01, 0.001)),
    max_queue=st.none() | st.integers(0, 5),
)


@given(configs, requests)
@settings(max_examples=150, deadline=None)
def test_blocks_are_conserved_counters_never_fall_and_every_request_ends(
    config: Config, some: Sequence[Request]
) -> None:
    ended: list[Finished] = []
    engine = Engine(config, ended.append)
    counters = [0]
    for request in some:
        engine.advance(request.arrival)
        engine.submit(request)
        check_blocks(engine)
    # The longest step, and as many as it takes if all are computed one after the other, each again for each token.
    for _ in range(len(some) * LONGEST * 13 * 2):
        if not engine.running and not engine.waiting:
            break
        engine.advance(engine.now + 0.7)
        check_blocks(engine)
        look, tally = engine.look, engine.tally
        now = [look.queries, look.hits, look.preemptions, tally.generation_tokens, tally.prompt_tokens, len(ended)]
        assert all(before <= after for before, after in zip(counters, now, strict=False))
        assert look.hits <= look.queries
        counters = now
    assert sorted(map(id, (one.request for one in ended))) == sorted(map(id, some))
    assert engine.usage == 0
    # Each token of an answer is made once, however often it was preempted.
    assert engine.tally.generation_tokens == sum(one.output_tokens for one in ended)
    assert engine.queries == sum(one.request.prompt_tokens for one in ended if one.status == 200)


@given(configs, requests, st.lists(st.floats(0.01, 5), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_it_does_not_matter_in_which_pieces_time_passes(
    config: Config, some: Sequence[Request], pieces: Sequence[float]
) -> None:
    runs = []
    for lengths in ([100_000.0], pieces):
        ended: list[Finished] = []
        engine = Engine(config, ended.append, started=0)
        for request in some:
            pass_time(engine, request.arrival, lengths)
            engine.submit(request)
        pass_time(engine, 2000, lengths)
        runs.append((ended, engine.page()))
    assert runs[0] == runs[1]


def pass_time(engine: Engine, until: float, pieces: Sequence[float]) -> None:
    turn = 0
    while engine.now < until:
        engine.advance(min(until, engine.now + pieces[turn % len(pieces)]))
        turn += 1
    engine.advance(until)


def check_blocks(engine: Engine) -> None:
    """Every block is free or owned, and who shares one has the same prefix up to there."""
    owners: Counter[int] = Counter()
    keys: dict[int, int] = {}
    for sequence in engine.scheduler.running:
        assert len(sequence.blocks) * SIZE >= sequence.computed
        assert len(set(sequence.blocks)) == len(sequence.blocks)
        owners.update(sequence.blocks)
    for sequence in engine.scheduler.running:
        for index, block in enumerate(sequence.blocks):
            if owners[block] > 1:
                assert index < sequence.full
                key = sequence.keys.first(index + 1)[index]
                assert keys.setdefault(block, key) == key
    assert all(not sequence.blocks for sequence in engine.scheduler.waiting)
    assert 0 not in owners
    assert engine.free_blocks == engine.config.usable - len(owners)
    assert 0 <= engine.cached_blocks <= engine.free_blocks
