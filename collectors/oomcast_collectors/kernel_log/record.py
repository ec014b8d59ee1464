r"""One record of /dev/kmsg: `prio,seq,usec,flags[,..];text\n`, then ` KEY=value\n` lines (see ABI/testing/dev-kmsg)."""

import re
from typing import NamedTuple

_HEADER = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]*;")
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")

# Nearly every record holds none of these. One alternation of literals takes a seventh of the time of ten `in`.
_MATTERS = re.compile(
    b"|".join(
        re.escape(literal)
        for literal in (
            b"Killed process ",
            b"Kill process ",
            b"oom-kill",
            b"memory.oom.group set",
            b" as a result of limit of ",
            b"segfault at ",
            b"traps: ",
            b": unhandled ",
            b"unexpected fatal signal ",
            b"NVRM: ",
        )
    )
)


class Record(NamedTuple):
    """facility: 0 is the kernel. usec: microseconds of the kernel's local clock. body: the escaped text, with
    the ` KEY=value` lines that may follow it."""

    facility: int
    sequence: int
    usec: int
    body: bytes

    @property
    def text(self) -> str:
        """The text as it was printed. Bytes that are no UTF-8 show as \\xNN: a process names itself as it likes,
        and a lone surrogate would break whoever encodes the text later."""
        # The kernel escapes the backslash too, so that nothing printed can look like an escape.
        line = self.body.partition(b"\n")[0]
        return _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), line).decode("utf-8", "backslashreplace")


def parse_record(raw: bytes) -> Record | None:
    """The record in `raw`, or None if it has no header of one."""
    header = _HEADER.match(raw)
    if header is None:
        return None
    return Record(int(header[1]) >> 3, int(header[2]), int(header[3]), raw[header.end() :])


def may_matter(body: bytes) -> bool:
    """False for a body that no parser of this package would take."""
    return _MATTERS.search(body) is not None
