"""What is known of a process' device memory."""

from oomcast_collectors.ebpf.child.cuda.ranges import Ranges, Span

_MOST_BLOCKS = 100_000


class DeviceMemory:
    """The blocks that were seen allocated, the latest. Not thread-safe."""

    def __init__(self) -> None:
        self._ranges = Ranges()
        self._blocks: dict[int, tuple[Span, bool]] = {}
        self._number = 0

    def allocated(self, address: int, size: int, *, device: bool) -> None:
        """device: False for unified memory."""
        if size <= 0:
            return
        for span in self._ranges.overlapping(address, address + size):
            self.freed(span.start)
        self._number += 1
        span = Span(address, address + size, self._number)
        self._ranges.add(span)
        self._blocks[address] = span, device
        if len(self._blocks) > _MOST_BLOCKS:
            self.freed(next(iter(self._blocks)))

    def freed(self, address: int) -> None:
        span, _ = self._blocks.pop(address, (None, False))
        if span is not None:
            self._ranges.remove(span)

    def is_device(self, address: int) -> bool | None:
        """False: unified memory. None: not known."""
        for span in self._ranges.overlapping(address, address + 1):
            return self._blocks[span.start][1]
        return None

    def clear(self) -> None:
        self._ranges.clear()
        self._blocks.clear()
