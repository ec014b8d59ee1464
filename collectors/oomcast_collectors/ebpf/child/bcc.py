"""BCC, found and put right: the module that is in Debian, without kernel headers, with a tracefs of our own."""

import contextlib
import ctypes
import errno
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oomcast.contract import NotPresent
from oomcast_collectors.ebpf.machine import find
from oomcast_collectors.ebpf.privileges import LOCKED_MEMORY, TRACEFS, Tracefs, release, tracefs

HEADERS = Path(__file__).parent.parent / "headers"
"""Just enough of the kernel's headers to compile programs that trace user space: types and the registers."""

_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = 0x4000 | 0x40000
_LONGEST = 60
"""Seconds in which a program is compiled."""


class EbpfError(Exception):
    """Something with eBPF did not work; the text says what."""


class NotPermitted(EbpfError):
    """The kernel does not let this process; it will not let the next one either."""


class Bcc:
    """The parts of BCC that are used. BPF: its class. lib: libbcc.

    Uprobes are attached without it, see uprobes.py: it calls its own function with six arguments of seven, and what
    happens to be on the stack becomes an offset at which the kernel counts (iovisor/bcc#5236)."""

    def __init__(self) -> None:
        """Raises NotPresent without BCC, OSError where no tracefs can be mounted. Makes the calling process' mounts
        private, so it is for the child alone."""
        _private_tracefs()
        # Read when a program is compiled; the machine's own headers would be slower, and are seldom there.
        os.environ["BCC_KERNEL_SOURCE"] = str(HEADERS)
        module = _module()
        self.BPF: Any = module.BPF
        self.lib: Any = sys.modules["bcc.libbcc"].lib

    def compile(self, text: str) -> Any:
        """A BPF object. Raises EbpfError with the end of what the compiler or the verifier said."""
        with captured() as said:
            try:
                # Its warnings are about its own headers.
                return self.BPF(text=text, cflags=["-w"])
            except Exception as error:
                raise _failure(f"{error}: {said()[-500:]}".strip(": ")) from error

    def try_out(self, text: str) -> None:
        """Compiles it in a process that may die of it: some errors end the compiler's process, and some texts keep it
        busy for ever. Raises EbpfError if that is so; what is wrong otherwise is for compile() to say."""
        child = os.fork()
        if child == 0:
            signal.alarm(_LONGEST)
            with contextlib.suppress(EbpfError):
                self.compile(text)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise EbpfError("the compiler dies of it, or does not end")

    def load(self, bpf: Any, function: str, kind: int, attach_type: int = -1) -> int:
        """The descriptor of a loaded program. Raises EbpfError."""
        with captured() as said:
            try:
                return int(bpf.load_func(function.encode(), kind, None, attach_type).fd)
            except Exception as error:
                raise _failure(f"{error}: {said()[-500:]}".strip(": ")) from error

    def tidy(self) -> None:
        """Gives back what compiling took and nobody needs any more, a fifth of this process."""
        self.lib.bcc_free_memory()
        ctypes.CDLL(None).malloc_trim(0)


def _failure(text: str) -> EbpfError:
    """By what the kernel said: EPERM, while EACCES is what it says of a program that it finds no good."""
    if os.strerror(errno.EPERM) not in text:
        return EbpfError(text)
    if release() < LOCKED_MEMORY:
        text += " (before kernel 5.11 tables are locked memory: LimitMEMLOCK=infinity, or CAP_SYS_RESOURCE)"
    return NotPermitted(text)


def _module() -> Any:
    package = find()
    if package is None:
        raise NotPresent("BCC is not installed (Debian, Ubuntu: python3-bpfcc)")
    # By its path, so that nothing else of the distribution's packages comes before our own.
    spec = importlib.util.spec_from_file_location(
        "bcc", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError, AttributeError) as error:
        raise NotPresent(f"BCC cannot be loaded: {error}") from error
    return module


def _private_tracefs() -> None:
    """Mounts tracefs where only this process sees it, if it is nowhere: tracepoints are looked up in it."""
    if tracefs() is not Tracefs.ABSENT:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    calls: tuple[Callable[[], int], ...] = (
        lambda: libc.unshare(_CLONE_NEWNS),
        lambda: libc.mount(None, b"/", None, _MS_REC_PRIVATE, None),
        lambda: libc.mount(b"tracefs", TRACEFS.encode(), b"tracefs", 0, None),
    )
    for call in calls:
        if call():
            number = ctypes.get_errno()
            raise OSError(number, f"tracefs cannot be mounted: {os.strerror(number)}")


class captured:
    """What C code writes to the standard error meanwhile, as BCC's compiler says there what is wrong."""

    def __enter__(self) -> Callable[[], str]:
        self._kept = os.dup(2)
        self._file = os.memfd_create("said")
        os.dup2(self._file, 2)
        return self._text

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)
        os.close(self._file)

    def _text(self) -> str:
        size = os.fstat(self._file).st_size
        return os.pread(self._file, 1 << 16, max(size - (1 << 16), 0)).decode("utf-8", "replace").strip()


def table_items(table: Any) -> Iterator[tuple[Any, Any]]:
    """All entries of a table, in few calls where the kernel can do that (5.6), else one by one.

    Keys are of table.Key, so one may be deleted by what is given here.
    """
    try:
        for key, value in table.items_lookup_batch():
            yield (table.Key(key) if isinstance(key, int) else key), value
    except Exception:  # noqa: BLE001 - BCC raises nothing narrower; what it cannot do at once it can do slowly
        yield from table.items()
