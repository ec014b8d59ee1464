"""Allocators that can be followed: which functions of which library give memory and take it back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

LIBC = "libc"


@dataclass(frozen=True, slots=True)
class Gives:
    """Functions that give memory. Numbers are arguments from 1 on, 0 is none.

    size, count: bytes, and what they are multiplied by. result: where the address is written, by a function that
    returns 0; without it the address is returned. old: the block that is taken back. factor: where another factor of
    the size is written. only_fails: whether it leaves giving to another one of these, so that only its failures count.
    """

    symbols: Sequence[str]
    kind: str
    size: int = 1
    count: int = 0
    result: int = 0
    old: int = 0
    factor: int = 0
    only_fails: bool = False


@dataclass(frozen=True, slots=True)
class Takes:
    """Functions that take memory back. kind: of frees of what is not known."""

    symbols: Sequence[str]
    kind: str
    address: int = 1


@dataclass(frozen=True, slots=True)
class Allocator:
    """Functions that share addresses: what one gives any other may take back."""

    name: str
    library: str
    functions: Sequence[Gives | Takes]


LIBRARY = "libc.so*|libc-*.so|ld-musl-*"


def _heap(name: str, prefixes: Sequence[str] = ("",)) -> Sequence[Gives | Takes]:
    """The C library's functions, by names with each of the prefixes."""

    def named(*symbols: str) -> Sequence[str]:
        return [f"{prefix}{symbol}" for symbol in symbols for prefix in prefixes]

    return [
        Gives(named("malloc", "valloc", "pvalloc"), name),
        Gives(named("calloc"), name, count=2),
        Gives(named("realloc"), name, size=2, old=1),
        Gives(named("memalign", "aligned_alloc"), name, size=2),
        Gives(named("posix_memalign"), name, size=3, result=1),
        Takes(named("free", "cfree"), name),
    ]


def _extended(name: str, prefixes: Sequence[str]) -> Sequence[Gives | Takes]:
    """jemalloc's own functions, without xallocx, which changes a block where it is."""
    return [
        *_heap(name, prefixes),
        Gives([f"{prefix}mallocx" for prefix in prefixes], name),
        Gives([f"{prefix}rallocx" for prefix in prefixes], name, size=2, old=1),
        Takes([f"{prefix}{symbol}" for symbol in ("dallocx", "sdallocx") for prefix in prefixes], name),
    ]


def _operators(name: str, forms_of_delete: Sequence[str]) -> Sequence[Gives | Takes]:
    """new and new[] of C++, and those forms of delete and delete[] that call no other function of the allocator's."""
    forms_of_new = ("", "RKSt9nothrow_t", "St11align_val_t", "St11align_val_tRKSt9nothrow_t")
    return [
        Gives([f"_Zn{which}m{form}" for which in "wa" for form in forms_of_new], name),
        Takes([f"_Zd{which}Pv{form}" for which in "la" for form in forms_of_delete], name),
    ]


def _rust(symbol: str) -> Sequence[str]:
    """As it was named at first, and as it is mangled since 1.87."""
    return symbol, f"/^_RNvC\\w+_7___rustc{len(symbol)}_{symbol}$/"


_CUDA = (
    Gives(
        [
            *("cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz"),
            *("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"),
        ],
        "cuda",
        size=2,
        result=1,
    ),
    Gives(["cuMemAllocPitch_v2"], "cuda", size=4, factor=2, result=1),
    Gives(["cuMemAllocManaged"], "cuda_managed", size=2, result=1),
    Gives(["cuMemHostAlloc", "cuMemAllocHost_v2"], "cuda_host", size=2, result=1),
    Takes(["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz"], "cuda"),
    Takes(["cuMemFreeHost"], "cuda_host"),
)
_CUDART = (
    Gives(
        [
            *("cudaMalloc", "cudaMallocAsync", "cudaMallocAsync_ptsz"),
            *("cudaMallocFromPoolAsync", "cudaMallocFromPoolAsync_ptsz"),
        ],
        "cudart",
        size=2,
        result=1,
    ),
    Gives(["cudaMallocPitch"], "cudart", size=4, factor=2, result=1),
    Gives(["cudaMallocManaged"], "cudart_managed", size=2, result=1),
    Gives(["cudaMallocHost", "cudaHostAlloc"], "cudart_host", size=2, result=1),
    Takes(["cudaFree", "cudaFreeAsync", "cudaFreeAsync_ptsz"], "cudart"),
    Takes(["cudaFreeHost"], "cudart_host"),
)
_RUST = (
    Gives([*_rust("__rust_alloc"), *_rust("__rust_alloc_zeroed")], "rust"),
    Gives(_rust("__rust_realloc"), "rust", size=4, old=1),
    Takes(_rust("__rust_dealloc"), "rust"),
)
_SIZED = ("m", "mSt11align_val_t")
_UNSIZED = ("", "RKSt9nothrow_t", "St11align_val_t", "St11align_val_tRKSt9nothrow_t")
_LINKED_IN = ("je_", "_rjem_")

SHIPPED: Mapping[str, Sequence[Allocator]] = MappingProxyType(
    {
        LIBC: [
            Allocator(LIBC, LIBRARY, [*_heap(LIBC), Gives(["reallocarray"], LIBC, size=2, count=3, only_fails=True)])
        ],
        "jemalloc": [
            Allocator(
                "jemalloc",
                "libjemalloc.so*",
                [*_extended("jemalloc", ("", *_LINKED_IN)), *_operators("jemalloc", _SIZED)],
            ),
            Allocator("jemalloc", "@", _extended("jemalloc", _LINKED_IN)),
        ],
        "tcmalloc": [
            Allocator(
                "tcmalloc", "libtcmalloc*.so*", [*_heap("tcmalloc"), *_operators("tcmalloc", (*_UNSIZED, *_SIZED))]
            )
        ],
        "rust": [Allocator("rust", "@", _RUST)],
        "cuda": [Allocator("cuda", "libcuda.so*", _CUDA)],
        "cudart": [Allocator("cudart", "libcudart.so*", _CUDART)],
    }
)
