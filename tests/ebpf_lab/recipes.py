"""The programs of the lab: how each is compiled, and how those that crash end."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

_POINTERS = ("-fno-omit-frame-pointer",)
_NO_POINTERS = ("-O2", "-fomit-frame-pointer")
# The CUDA functions begin as a driver's do, with the push that sets a frame up.
_LIBRARY = ("-O0", "-shared", "-fPIC", "-fvisibility=hidden")
_PLAIN = ("leak", "ages", "flows", "threads", "reallocs", "pool", "forks", "quick", "storm", "faults")
_BESIDE = "-Wl,-rpath,$ORIGIN"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a program is compiled. beside: what is built first, into the same folder. A source in .rs is Rust."""

    sources: Sequence[str]
    flags: Sequence[str] = _POINTERS
    beside: Sequence[str] = ()


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {name: Recipe([f"{name}.c"]) for name in _PLAIN}
    | {
        "bench": Recipe(["bench.c"], ["-O2"]),
        "static": Recipe(["leak.c"], [*_POINTERS, "-static"]),
        "stripped": Recipe(["leak.c"], [*_POINTERS, "-s"]),
        "nofp": Recipe(["leak.c"], _NO_POINTERS),
        "libcrash.so": Recipe(["libcrash.c"], ["-O0", "-shared", "-fPIC"]),
        "crash": Recipe(["crash.c"], ["-O0", "-l:libcrash.so", _BESIDE], ["libcrash.so"]),
        "libcuda.so.1": Recipe(
            ["cuda/session.c", "cuda/memory.c", "cuda/space.c"], [*_LIBRARY, "-Wl,-soname,libcuda.so.1"]
        ),
        "libcudart.so.12": Recipe(["cuda/cudart.c", "cuda/space.c"], [*_LIBRARY, "-Wl,-soname,libcudart.so.12"]),
        "cuda": Recipe(
            ["cuda/program.c", "cuda/memory_phases.c", "cuda/write_phases.c"],
            [*_POINTERS, "-l:libcuda.so.1", "-l:libcudart.so.12", _BESIDE],
            ["libcuda.so.1", "libcudart.so.12"],
        ),
        "cuda_flood": Recipe(["cuda/flood.c"], [*_POINTERS, "-l:libcuda.so.1", _BESIDE], ["libcuda.so.1"]),
        "arena": Recipe(["arena.rs"], ["-C", "force-frame-pointers=yes"]),
        "panics": Recipe(["panics.rs"], ["-C", "force-frame-pointers=yes", "-C", "symbol-mangling-version=v0"]),
        # The older mangling is an unstable option wherever it is not the default.
        "panics_legacy": Recipe(
            ["panics.rs"],
            ["-C", "force-frame-pointers=yes", "-Z", "unstable-options", "-C", "symbol-mangling-version=legacy"],
        ),
        "panics_abort": Recipe(["panics.rs"], ["-C", "force-frame-pointers=yes", "-C", "panic=abort"]),
        "panics_nofp": Recipe(["panics.rs"], ["-C", "panic=abort"]),
    }
)


CRASHES: Mapping[str, signal.Signals | None] = MappingProxyType(
    {
        "null_read": signal.SIGSEGV,
        "null_write": signal.SIGSEGV,
        "wild_write": signal.SIGSEGV,
        "read_only_write": signal.SIGSEGV,
        "noncanonical": signal.SIGSEGV,
        "exec_null": signal.SIGSEGV,
        "exec_data": signal.SIGSEGV,
        "stack_overflow": signal.SIGSEGV,
        "raise": signal.SIGSEGV,
        "reraised": signal.SIGSEGV,
        "thread": signal.SIGSEGV,
        "library": signal.SIGSEGV,
        "abort": signal.SIGABRT,
        "double_free": signal.SIGABRT,
        "bus": signal.SIGBUS,
        "division": signal.SIGFPE,
        "illegal": signal.SIGILL,
        "handled": None,
    }
)
"""The kinds of `crash`, with the signal that ends it. What crashes is the function crash_<kind> or one that it calls:
of `thread` crash_in_thread, in a thread named tokio-runtime-w, and of `library` libcrash_read in libcrash.so."""
