"""Which file's code a fatal signal is put down to."""

import fnmatch
from collections.abc import Sequence

from oomcast_collectors.ebpf.child.symbols.unwind import Call

_C_LIBRARY = ("libc.so*", "libc-*.so", "libpthread*.so*", "ld-linux*.so*", "ld-musl-*", "ld-*.so", "libc.musl-*")
_RUNTIME = (*_C_LIBRARY, "libstdc++.so*", "libgcc_s.so*", "libc++.so*", "libc++abi.so*")
"""What only carries an abort out: raise(), abort(), std::terminate()."""


def blamed(calls: Sequence[Call], *, sent: bool) -> str:
    """The file name, "" if unknown. sent: the process was sent the signal, as abort() does, and its caller is meant;
    else it is the code that the CPU stopped at, or, where that is none, who jumped there."""
    modules = [call.frame.module for call in calls if call.frame.module]
    if sent:
        callers = (module for module in modules if not any(fnmatch.fnmatchcase(module, one) for one in _RUNTIME))
        return next(callers, modules[0] if modules else "")
    return modules[0] if modules else ""
