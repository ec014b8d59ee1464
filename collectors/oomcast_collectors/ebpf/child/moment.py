"""When something happened that a program in the kernel has stamped with bpf_ktime_get_ns()."""

from oomcast.clock import Clock


def moment(clock: Clock, nanoseconds: int) -> tuple[float, float]:
    """(UTC seconds, monotonic seconds): the stamp is of the very clock that Python's monotonic one is."""
    monotonic = nanoseconds / 1e9
    return clock.time() - (clock.monotonic() - monotonic), monotonic
