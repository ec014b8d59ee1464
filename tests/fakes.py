"""Stand-ins for what a test cannot wait for. Everything else in the tests is real."""

from dataclasses import dataclass


@dataclass(slots=True)
class FakeClock:
    """A clock that moves only when told to: wall is UTC seconds, mono the monotonic seconds."""

    wall: float = 1_700_000_000.0
    mono: float = 1000.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.mono

    def advance(self, seconds: float) -> None:
        """Time passes: both clocks move."""
        self.wall += seconds
        self.mono += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the time of day: only the wall clock moves, either way."""
        self.wall += seconds
