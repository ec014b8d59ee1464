"""How long a step of the engine takes."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a step, by what is in it. The defaults are of an 8-billion-parameter model on an A100.

    base: of any step: the weights are read once, kernels are started. prefill_token: of each token of a prompt.
    prefill_pair: of each pair of a token and one before it, which makes a prompt's cost grow with its square.
    decode_sequence: of each sequence that gets its next token. decode_context: of each token that such a sequence
    looks back at.
    """

    base: float = 1e-2
    prefill_token: float = 1e-4
    prefill_pair: float = 3.4e-9
    decode_sequence: float = 2e-5
    decode_context: float = 8e-8

    def __post_init__(self) -> None:
        if self.base <= 0:
            raise ValueError("base: a step takes time, or the engine would never get to the end of a moment")
        if min(self.prefill_token, self.prefill_pair, self.decode_sequence, self.decode_context) < 0:
            raise ValueError("no part of a step takes less than no time")

    def step(self, chunks: Iterable[tuple[int, int]]) -> float:
        """Seconds of a step. chunks: for each sequence in it, tokens computed before, and in this step."""
        tokens = pairs = sequences = context = 0
        for before, count in chunks:
            if count == 1:
                sequences += 1
                context += before
            else:
                tokens += count
                pairs += count * before + count * (count + 1) // 2
        return (
            self.base
            + self.prefill_token * tokens
            + self.prefill_pair * pairs
            + self.decode_sequence * sequences
            + self.decode_context * context
        )
