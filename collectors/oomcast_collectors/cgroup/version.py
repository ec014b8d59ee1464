"""What cgroup v1 and v2 call the same things: the core files of a cgroup, and what they say."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from oomcast_collectors.cgroup.stat import Picker, bounded, limit, number

_CACHE_PER_METADATA = 32
"""v1 does not tell reclaimable slab apart, and page cache drags some along that goes when it goes: buffer heads
(104 bytes a page) and tree nodes (9) are 2.8 %. Left in, a writer of files would look like a leak."""


_TEXTS = 512
"""Limits and event counts remembered by their text: most cgroups have the same few, and keep them."""


class Reading(NamedTuple):
    """One cgroup at one moment, bytes and counts; None where the kernel does not say.

    unreclaimable: what no reclaim can free, so that reaching the limit with it is an OOM kill: everything charged
    less file pages on the evictable lists and reclaimable slab, and at least anonymous plus shared memory. limit:
    the cgroup's own; effective: known to the kernel (v1 only).
    swap_limit: of swap alone. kills: since the cgroup began; hierarchical on v2, of its own processes on v1.
    """

    used: int | None
    unreclaimable: int | None
    limit: int | None
    effective: int | None
    kills: int | None
    pgmajfault: int | None
    swap_used: int | None
    swap_limit: int | None


class Version(Protocol):
    """files: (name, usual size) of the core files, in the order that `decode` takes their texts."""

    @property
    def files(self) -> Sequence[tuple[str, int]]: ...

    @property
    def kills_scope(self) -> str: ...

    def decode(self, texts: Sequence[bytes]) -> Reading:
        """An empty text stands for a file that this kernel does not have. Raises Malformed."""


class V2:
    """The unified hierarchy. swap: whether the host has any; without it two files need not be read."""

    def __init__(self, *, swap: bool, local_events: bool) -> None:
        # The mount option memory_localevents makes memory.events speak of the cgroup alone.
        self.kills_scope = "own" if local_events else "hierarchical"
        self.files = [("memory.current", 32), ("memory.stat", 2048), ("memory.events", 160), ("memory.max", 32)]
        if swap:
            self.files += [("memory.swap.current", 32), ("memory.swap.max", 32)]
        self._stat = Picker(b"anon", b"shmem", b"inactive_file", b"active_file", b"slab_reclaimable", b"pgmajfault")
        self._limit = lru_cache(_TEXTS)(limit)
        self._events = lru_cache(_TEXTS)(Picker(b"max", b"oom_kill").pick)

    def decode(self, texts: Sequence[bytes]) -> Reading:
        current, stat, events, own = texts[:4]
        used = number(current) if current else None
        majfault = unreclaimable = None
        if stat:
            anon, shmem, inactive, active, slab, majfault = self._stat.pick(stat)
            if used is not None and inactive is not None and active is not None:
                kept = used - inactive - active - (slab or 0)
                unreclaimable = max(kept, (anon or 0) + (shmem or 0))
        kills = self._events(events)[1] if events else None
        swap = texts[4:] or (b"", b"")
        return Reading(
            used,
            unreclaimable,
            self._limit(own) if own else None,
            None,
            kills,
            majfault,
            number(swap[0]) if swap[0] else None,
            self._limit(swap[1]) if swap[1] else None,
        )


class V1:
    """The memory controller's own hierarchy. Its memory.stat has every key twice: local, and total_ for the subtree."""

    kills_scope = "own"
    files = (
        ("memory.usage_in_bytes", 32),
        ("memory.stat", 1536),
        ("memory.oom_control", 96),
        ("memory.limit_in_bytes", 32),
    )

    def __init__(self) -> None:
        self._stat = Picker(
            b"total_rss", b"total_shmem", b"total_inactive_file", b"total_active_file", b"total_pgmajfault",
            b"hierarchical_memory_limit", b"total_swap", b"hierarchical_memsw_limit",
        )  # fmt: skip
        self._limit = lru_cache(_TEXTS)(limit)
        self._control = lru_cache(_TEXTS)(Picker(b"under_oom", b"oom_kill").pick)

    def decode(self, texts: Sequence[bytes]) -> Reading:
        usage, stat, control, own = texts
        used = number(usage) if usage else None
        majfault = effective = unreclaimable = swap = memsw = None
        if stat:
            rss, shmem, inactive, active, majfault, effective, swap, memsw = self._stat.pick(stat)
            if used is not None and inactive is not None and active is not None:
                cache = inactive + active
                unreclaimable = max(used - cache - cache // _CACHE_PER_METADATA, (rss or 0) + (shmem or 0))
        effective, memsw = bounded(effective), bounded(memsw)
        return Reading(
            used,
            unreclaimable,
            self._limit(own) if own else None,
            effective,
            self._control(control)[1] if control else None,
            majfault,
            swap,
            None if memsw is None or effective is None else max(memsw - effective, 0),
        )
