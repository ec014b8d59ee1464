"""What an engine is started with."""

from dataclasses import dataclass, field

from simulator.cost import Cost


@dataclass(frozen=True, slots=True)
class Config:
    """The names are those of vLLM's options.

    blocks: of the KV cache, one of them never given out. block_size, max_model_len (prompt and answer together),
    max_num_batched_tokens (of one step): tokens. max_num_seqs: that run at the same time. max_queue: requests that may
    wait before others are turned away, None for any number. Raises ValueError where a request could never be served.
    """

    blocks: int
    block_size: int = 16
    max_model_len: int = 131072
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    model: str = "sim"
    cost: Cost = field(default_factory=Cost)
    max_queue: int | None = None

    def __post_init__(self) -> None:
        if min(self.block_size, self.max_model_len, self.max_num_seqs, self.max_num_batched_tokens) < 1:
            raise ValueError("block_size, max_model_len, max_num_seqs and max_num_batched_tokens are at least 1")
        if self.max_queue is not None and self.max_queue < 0:
            raise ValueError("max_queue is not negative")
        if self.usable * self.block_size < self.max_model_len:
            raise ValueError(f"max_model_len: {self.usable} usable blocks of {self.block_size} tokens are less")

    @property
    def usable(self) -> int:
        """Blocks that are given out."""
        return self.blocks - 1
