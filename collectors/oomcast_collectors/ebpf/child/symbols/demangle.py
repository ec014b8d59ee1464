"""Names of functions as they are written in their language."""

import ctypes
import re
from functools import lru_cache
from typing import Any

import rust_demangler

_LONGEST = 1024
_MOST_REFERENCES = 20
_REFERENCE = re.compile(r"[BST][0-9A-Za-z]*_")
"""To what a name has had already. Each level of them can double the length: forty make gigabytes of a short name."""
_RUST_LEGACY = re.compile(r"_ZN.*17h[0-9a-f]{16}E\Z")
_HASH = re.compile(r"::h[0-9a-f]{16}\Z")


@lru_cache(10_000)
def demangled(name: str) -> str:
    """A Rust or C++ name without the hash of its crate or of itself, cut where it is longer than any that is worth
    reading; any other name as it is, and one that would take too long."""
    if not name.startswith(("_R", "_Z")) or len(name) > _LONGEST or len(_REFERENCE.findall(name)) > _MOST_REFERENCES:
        return name
    return _plain(name)[:_LONGEST]


def _plain(name: str) -> str:
    if name.startswith("_R") or _RUST_LEGACY.match(name):
        try:
            return _HASH.sub("", str(rust_demangler.demangle(name)))
        except Exception:  # noqa: BLE001 - the library raises its own classes, IndexError and RecursionError; names are data
            return name
    return _cxx(name)


def _cxx(name: str) -> str:
    library = _library()
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode("utf-8", "replace"), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        library.free(text)


@lru_cache(1)
def _library() -> Any:
    # BCC has it loaded. It brings the C library along, whose free() is that of what it allocates.
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.free.argtypes = [ctypes.c_void_p]
    return library
