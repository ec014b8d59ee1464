"""Who called whom, in processes whose code has frame pointers, has none, or has some."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise, takewhile
from typing import Any, NamedTuple

from oomcast_collectors.ebpf.child.symbols.symbols import UNKNOWN, Frame, Symbols

MOST_FRAMES = 30
_CALL = 7
"""Bytes of the longest call."""
_PROLOGUE = 8
_SETS_POINTER = tuple(
    branch + b"\x55" + move for branch in (b"", b"\xf3\x0f\x1e\xfa") for move in (b"\x48\x89\xe5", b"\x48\x8b\xec")
)
"""endbr64, if any; push %rbp; mov %rsp,%rbp in either of its encodings."""


class Call(NamedTuple):
    """One frame. certain: it follows from frame pointers; else its address merely lies on the stack, where a call that
    is long over may have left it."""

    frame: Frame
    certain: bool

    def __str__(self) -> str:
        return f"{self.frame}" if self.certain else f"? {self.frame}"


class Stack(NamedTuple):
    """As a program told it. addresses: the instruction and, by frame pointers, where the functions around it return to.
    words: the stack from its pointer on; may be empty."""

    addresses: Sequence[int]
    words: Sequence[int]

    @classmethod
    def of(cls, told: Any, chunk: int) -> "Stack":
        """told: an item with the members of stack.h; chunk: words in one of its pieces."""
        return cls(tuple(told.addresses[: max(told.frames, 0) // 8]), tuple(told.words[: told.chunks * chunk]))


def unwound(stack: Stack, symbols: Symbols, pid: int) -> list[Call]:
    """The calls, innermost first; none of a process that is not known.

    Some code has frame pointers and some has none, the C library for one, so the chain leaves out whoever called it;
    likewise a jump to nowhere has no frame yet. What lies on the stack between the return addresses on both sides fills
    such a gap. Code without any leaves no chain at all, and then that is all there is.
    """
    if not stack.addresses or (innermost := symbols.frame(stack.addresses[0], pid)) is None:
        return []
    at, *outer = stack.addresses
    # Wherever a compiler kept something else in the frame pointer, the rest of the chain is what lay there.
    chain = list(takewhile(lambda address: _returns_to(address, symbols, pid), outer))
    broken = len(chain) < len(outer) or not chain
    found = [Call(innermost, True)]
    words = iter(stack.words)
    for inner, address in pairwise([at, *chain]):
        gap = list(takewhile(lambda word: word != address, words))  # noqa: B023 - used up within this round
        if not _keeps_pointer(found[-1].frame, inner - (inner != at), symbols, pid):
            found += islice(_scanned(gap, symbols, pid), MOST_FRAMES)
        found.append(_call(address, symbols, pid, certain=True))
        if len(found) >= MOST_FRAMES:
            break
    if broken:
        found += islice(_scanned(words, symbols, pid), MOST_FRAMES)
    return found[:MOST_FRAMES]


def _scanned(words: Iterable[int], symbols: Symbols, pid: int) -> Iterator[Call]:
    for word in words:
        if _returns_to(word, symbols, pid):
            yield _call(word, symbols, pid, certain=False)


def _call(address: int, symbols: Symbols, pid: int, *, certain: bool) -> Call:
    # A return address may lie behind the end of a function that never returns, so look one byte earlier.
    frame = symbols.frame(address - 1, pid)
    assert frame is not None
    return Call(frame, certain)


def _keeps_pointer(innermost: Frame, address: int, symbols: Symbols, pid: int) -> bool:
    """Whether the innermost function has set its frame pointer up by then, so that there is no gap behind it."""
    if innermost.function == UNKNOWN:
        return False
    code = symbols.code(address - innermost.offset, _PROLOGUE, pid)
    return any(code.startswith(start) and innermost.offset >= len(start) for start in _SETS_POINTER)


def _returns_to(address: int, symbols: Symbols, pid: int) -> bool:
    """Whether the instruction before is a call (x86-64)."""
    code = symbols.code(address - _CALL, _CALL, pid)
    if len(code) < _CALL:
        return False
    # Through a register or memory: ff /2, in all lengths that it has; or e8, relative.
    return code[-5] == 0xE8 or any(code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in (2, 3, 4, 6, 7))
