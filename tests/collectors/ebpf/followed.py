"""Programs of the lab under names of their own, so that a child follows those of one run and no others."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from collectors.ebpf.live import Live
from ebpf_lab.lab import Target, build

_COUNTED = ("calls", "bytes", "frees", "freed_bytes", "failures")


def own(name: str) -> str:
    """The name that a program of the lab runs under; the kernel keeps 15 characters."""
    return f"{os.getpid()}-{name}"[:15]


@contextmanager
def program(name: str, *arguments: str, called: str = "") -> Iterator[tuple[str, Target]]:
    """(the name it runs under, the program), which waits before its first phase. called: in place of the program's."""
    built = build(name)
    path = built.with_name(own(called or name))  # beside the libraries that it may need
    shutil.copy2(built, path)
    with Target(path, *arguments) as target:
        yield path.name, target


def follow(live: Live, name: str, processes: int = 1) -> None:
    """Waits until so many processes of that name are followed, and functions of theirs are."""
    live.until(lambda: live.value("oomcast_ebpf_targets", name) == processes)
    live.until(lambda: live.value("oomcast_alloc_calls_total", name, "mmap") is not None)


def counted(live: Live, name: str, kind: str) -> dict[str, float | None]:
    """As programs of the lab say it."""
    values = {key: live.value(f"oomcast_alloc_{key}_total", name, kind) for key in _COUNTED}
    return {"allocs": values.pop("calls"), **values}


def outstanding(live: Live, name: str, kind: str, of: str = "bytes") -> float:
    """Of all ages."""
    metric = f"oomcast_alloc_outstanding_{of}"
    return sum(value for (m, labels), value in live.rows.items() if m == metric and labels[:2] == (name, kind))


def expect(live: Live, name: str, kind: str, said: Mapping[str, Any]) -> None:
    """Waits until exactly that is counted which a program says, and checks what is outstanding."""
    wanted = {key: said[key] for key in ("allocs", "bytes", "frees", "freed_bytes", "failures")}
    live.until(lambda: counted(live, name, kind) == wanted, 5.0)
    assert outstanding(live, name, kind) == wanted["bytes"] - wanted["freed_bytes"]
    assert outstanding(live, name, kind, "blocks") == wanted["allocs"] - wanted["frees"]
    assert live.value("oomcast_alloc_unknown_frees_total", name, kind) == 0
