"""Who is computed, and with which blocks, worked out by hand: blocks of four tokens, a second for each step."""

from simulated import Seen, request


def work(seen: Seen) -> list[int]:
    """Tokens of each request computed so far, in the order of admission."""
    return [sequence.computed for sequence in seen.engine.scheduler.running]


def test_a_prompt_is_read_in_chunks_of_the_budget() -> None:
    seen = Seen(8, batched=4)
    seen.submit(request(10, 2))
    # The first step has begun, as has the next one whenever one ends.
    seen.engine.advance(0)
    assert work(seen) == [4]
    seen.steps()
    assert work(seen) == [8]
    seen.steps()
    assert work(seen) == [10]
    seen.steps(2)
    assert [(one.first_token, one.ended) for one in seen.ended] == [(3, 4)]


def test_who_runs_comes_before_who_waits() -> None:
    seen = Seen(8, batched=4)
    seen.submit(request(4, 5))
    seen.steps()
    seen.submit(request(8, 1))
    seen.steps()
    assert work(seen) == [6, 3]
    seen.steps()
    assert work(seen) == [7, 6]


def test_no_more_run_than_may() -> None:
    seen = Seen(8, sequences=2)
    seen.submit(*[request(4, 3) for _ in range(3)])
    seen.engine.advance(0)
    assert (seen.engine.running, seen.engine.waiting) == (2, 1)
    seen.steps(3)
    assert (seen.engine.running, seen.engine.waiting) == (1, 0)


def test_nobody_overtakes_who_has_no_room() -> None:
    seen = Seen(6)
    seen.submit(request(12, 3), request(15, 1), request(1, 1))
    seen.engine.advance(0)
    assert (seen.engine.running, seen.engine.waiting) == (1, 2)


def test_all_of_a_prompt_must_fit_though_only_a_part_is_read() -> None:
    seen = Seen(4, batched=8)
    seen.submit(request(7, 1), request(12, 1))
    seen.engine.advance(0)
    assert seen.blocks() == [[1, 2]]


def test_a_block_is_taken_when_a_token_needs_it() -> None:
    seen = Seen(4)
    seen.submit(request(7, 4))
    seen.engine.advance(0)
    assert seen.blocks() == [[1, 2]]
    seen.steps()
    assert (seen.blocks(), work(seen)) == ([[1, 2]], [8])
    seen.steps()
    assert (seen.blocks(), work(seen)) == ([[1, 2, 3]], [9])
    assert seen.engine.usage == 0.75


def test_the_last_admitted_is_preempted_and_computed_again() -> None:
    seen = Seen(4)
    older, younger = request(8, 8), request(7, 8)
    seen.submit(older, younger)
    seen.engine.advance(0)
    assert seen.blocks() == [[1, 2], [3, 4]]
    # A ninth token of the older one needs a block: that of the younger which is not full goes first.
    seen.steps()
    assert seen.blocks() == [[1, 2, 4]]
    assert (seen.engine.preemptions, seen.engine.waiting, seen.engine.free_blocks) == (1, 1, 1)
    assert seen.engine.cached_blocks == 1
    seen.to_end()
    assert [one.request for one in seen.ended] == [older, younger]
    assert [one.preemptions for one in seen.ended] == [0, 1]
    # The older one took the younger's full block as well, in step 6, and was done in step 8. The younger had one token
    # of its answer: seven to go.
    assert [(one.first_token, one.ended) for one in seen.ended] == [(1, 8), (1, 15)]
    assert (seen.engine.queries, seen.engine.hits, seen.engine.preemptions) == (15, 0, 1)


def test_who_was_preempted_finds_its_own_blocks_which_counts_as_no_hit() -> None:
    seen = Seen(4)
    seen.submit(request(8, 2), request(7, 8))
    seen.steps()
    assert seen.blocks() == [[1, 2, 4]]
    seen.steps()
    # Block 3 holds its first four tokens. Of the free ones 4 held nothing, and 2 was the tail of who is done.
    assert seen.blocks() == [[3, 4]]
    assert work(seen) == [8]
    assert (seen.engine.queries, seen.engine.hits) == (15, 0)
    seen.to_end()
    assert [one.cached_tokens for one in seen.ended] == [0, 0]


def test_who_was_preempted_is_the_next_one_again() -> None:
    seen = Seen(4)
    seen.submit(request(8, 4), request(7, 4), request(1, 1))
    seen.steps()
    assert [one.preemptions for one in seen.engine.scheduler.waiting] == [1, 0]


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    # The preempted one had two blocks, of which one was needed: the short one would fit.
    seen = Seen(5, sequences=2)
    seen.submit(request(8, 9), request(8, 9), request(1, 1))
    seen.steps()
    assert (seen.engine.running, seen.engine.preemptions) == (1, 1)
    assert seen.engine.free_blocks == 2


def test_the_last_one_preempts_itself() -> None:
    seen = Seen(4)
    seen.submit(request(6, 3), request(8, 3))
    seen.steps()
    assert seen.blocks() == [[1, 2]]
    assert (seen.engine.preemptions, seen.engine.waiting) == (1, 1)


def test_whole_blocks_of_a_prompt_are_found() -> None:
    seen = Seen(8)
    seen.submit(request(11, 1, 1, 2, 3))
    seen.to_end()
    seen.submit(request(11, 1, 1, 2, 3))
    seen.engine.advance(seen.engine.now)
    assert work(seen) == [11]
    assert seen.blocks() == [[1, 2, 3]]
    assert (seen.engine.queries, seen.engine.hits) == (22, 8)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    hits = []
    for prompt in (8, 9):
        seen = Seen(8)
        for _ in range(2):
            seen.submit(request(prompt, 1, 1, 2, 3))
            seen.to_end()
        hits.append(seen.engine.hits)
    assert hits == [4, 8]


def test_a_block_is_found_in_the_step_that_fills_it() -> None:
    seen = Seen(8)
    seen.submit(request(9, 1, 1, 2, 3), request(9, 1, 1, 2, 3))
    seen.engine.advance(0)
    assert seen.blocks() == [[1, 2, 3], [1, 2, 4]]
    assert seen.engine.usage == 0.5
    assert seen.engine.hits == 8


def test_the_tail_of_a_prompt_is_evicted_before_its_begin() -> None:
    seen = Seen(4)
    seen.submit(request(12, 1, 1, 2, 3))
    seen.to_end()
    seen.submit(request(8, 1, 7, 8))
    seen.to_end()
    # Three blocks held the first prompt; the second took the fourth, and the last of the three.
    seen.submit(request(13, 1, 1, 2, 3, 4))
    seen.steps()
    assert seen.engine.hits == 8


def test_blocks_that_are_found_and_free_are_room_that_is_needed() -> None:
    seen = Seen(4)
    seen.submit(request(9, 1, 1, 2, 3))
    seen.to_end()
    seen.submit(request(5, 5), request(12, 1, 1, 2, 3))
    seen.engine.advance(seen.engine.now)
    # Two are free, and two of the prompt's three blocks are among them: there is none for the third.
    assert (seen.engine.running, seen.engine.waiting, seen.engine.free_blocks) == (1, 1, 2)


def test_answers_are_found_by_nobody_else() -> None:
    seen = Seen(8)
    for _ in range(2):
        seen.submit(request(4, 6, 1))
        seen.to_end()
    assert seen.engine.hits == 0
