"""What tells one prefix from another: a key for each block's worth of it."""

from simulator.trace import Request


class Keys:
    """The keys of one sequence, made when asked for: a long trace has millions, of which few are looked at at a time.

    A key stands for a block and all those before it: the same where all tokens up to its end are the same.
    """

    def __init__(self, request: Request, serial: int, block_size: int) -> None:
        """serial: no other sequence's, from 0 on, for what is in no other sequence."""
        self._ids = request.block_ids
        self._span = request.block_tokens
        self._known = min(request.prompt_tokens, len(self._ids) * self._span)
        # Hashes of -1 and -2 are the same in Python, and ids are not negative.
        self._own = -3 - serial
        self._size = block_size
        self._keys: list[int] = []

    def first(self, count: int) -> list[int]:
        """The keys of the first `count` blocks, perhaps followed by others; not to be changed."""
        keys = self._keys
        parent = keys[-1] if keys else 0
        for index in range(len(keys), count):
            begin = index * self._size
            end = begin + self._size
            if end > self._known:
                parent = hash((parent, self._own))
            else:
                span = self._span
                parent = hash((parent, begin % span, *self._ids[begin // span : (end - 1) // span + 1]))
            keys.append(parent)
        return keys
