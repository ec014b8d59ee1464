"""The allocators that the settings name: their numbers in the program, and what runs at their functions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from oomcast_collectors.ebpf.child.allocations.allocators import LIBC, LIBRARY, SHIPPED, Allocator, Gives, Takes
from oomcast_collectors.ebpf.description import Uprobe
from oomcast_collectors.ebpf.settings import Allocations, Pair

BRK, MMAP = "brk", "mmap"
FLOW = "flow"
"""The group of their uprobes; that of an allocator is called as it is."""
MEASURED = "measured"
"""A group that is attached to no target: what a call of a pair's functions costs is measured with it."""

_MEASURED = Allocator(MEASURED, LIBRARY, [Gives(["malloc"], MMAP), Takes(["free"], MMAP)])

_GIVES = """
int {name}(struct pt_regs *ctx) {{ return begin(ctx, {space}, {size}, {old}, {place}, {factor}, {inner}); }}
int {name}_return(struct pt_regs *ctx) {{ return end(ctx, {space}, {kind}, {keeps}); }}
"""
_FAILS = _GIVES.replace("end(", "end_failing(")
_TAKES = """
int {name}(struct pt_regs *ctx) {{ return took({space}, {kind}, {address}, {keeps}); }}
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is followed. numbers: of kinds in the program. groups: of uprobes, by kind. spaces: numbers of the groups'
    addresses. text: the functions that uprobes name."""

    numbers: Mapping[str, int]
    groups: Mapping[str, str]
    spaces: Mapping[str, int]
    text: str
    uprobes: Sequence[Uprobe]


def plan(settings: Allocations) -> Plan:
    numbers, groups, spaces = {BRK: 1, MMAP: 2}, {BRK: FLOW, MMAP: FLOW}, {FLOW: 0}
    text: list[str] = []
    uprobes: list[Uprobe] = []
    for allocator in _chosen(settings):
        keeps = allocator.name != LIBC or settings.libc == "full"
        space = spaces.setdefault(allocator.name, len(spaces))
        for function in allocator.functions:
            kind = numbers.setdefault(function.kind, len(numbers) + 1)
            groups.setdefault(function.kind, allocator.name)
            name = f"on_{allocator.name}_{len(text)}"
            text.append(_text(function, name, space, kind, keeps))
            uprobes += [_uprobe(function, name, allocator, symbol) for symbol in function.symbols]
    for function in _MEASURED.functions if settings.pairs else ():
        name = f"on_{MEASURED}_{len(text)}"
        text.append(_text(function, name, len(spaces), numbers[function.kind], keeps=True))
        uprobes += [_uprobe(function, name, _MEASURED, symbol) for symbol in function.symbols]
    return Plan(numbers, groups, spaces, "".join(text), uprobes)


def _chosen(settings: Allocations) -> Iterator[Allocator]:
    if settings.libc != "off":
        yield from SHIPPED[LIBC]
    for index, pair in enumerate(settings.pairs):
        if isinstance(pair, Pair):
            yield _own(pair, f"pair_{index}")
        else:
            yield from SHIPPED[pair]


def _own(pair: Pair, name: str) -> Allocator:
    gives = Gives([pair.allocate], pair.kind, pair.size, pair.count or 0, pair.result or 0)
    return Allocator(name, pair.library, [gives, Takes([pair.free], pair.kind, pair.freed)])


def _text(function: Gives | Takes, name: str, space: int, kind: int, keeps: bool) -> str:
    if isinstance(function, Takes):
        return _TAKES.format(name=name, space=space, kind=kind, keeps=int(keeps), address=_argument(function.address))
    size = _argument(function.size)
    return (_FAILS if function.only_fails else _GIVES).format(
        name=name,
        space=space,
        kind=kind,
        keeps=int(keeps),
        # Where the product overflows there is no block.
        size=f"{size} * {_argument(function.count)}" if function.count else size,
        old=_argument(function.old),
        place=_argument(function.result),
        factor=_argument(function.factor),
        inner="MOST_INNER" if function.only_fails else 0,
    )


def _argument(number: int) -> str:
    return f"PT_REGS_PARM{number}(ctx)" if number else "0"


def _uprobe(function: Gives | Takes, name: str, allocator: Allocator, symbol: str) -> Uprobe:
    takes = isinstance(function, Takes)
    return Uprobe(
        library=allocator.library,
        symbol=symbol,
        entry=name,
        leave=None if takes else f"{name}_return",
        group=allocator.name,
        shift=takes,
    )
