"""The driver's library, one initialisation of it, and the one place where its return codes become faults."""

import ctypes
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from oomcast_collectors.gpu.driver import DriverError, Fault

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
NO_DATA = 21
UNKNOWN = 999

# What is not here is transient.
_FAULTS: Mapping[int, Fault] = MappingProxyType(
    {
        UNINITIALIZED: "session",
        NOT_SUPPORTED: "unsupported",
        4: "not_permitted",  # NO_PERMISSION
        9: "no_driver",  # DRIVER_NOT_LOADED
        LIBRARY_NOT_FOUND: "no_driver",
        FUNCTION_NOT_FOUND: "unsupported",
        15: "lost",  # GPU_IS_LOST
        16: "reset_required",  # RESET_REQUIRED
        17: "not_permitted",  # OPERATING_SYSTEM: the device cgroup
        18: "mismatch",  # LIB_RM_VERSION_MISMATCH
        28: "session",  # GPU_NOT_FOUND
    }
)


class _Loaded(ctypes.CDLL):
    """file: what the library was loaded from, as it was then."""

    file: tuple[int, int] | None = None


class Library:
    """The driver's library, which stays in the process once it is loaded. api: nvidia-ml-py, which knows only one.

    Raises DriverError `no_driver` where there is none.
    """

    def __init__(self, name: str) -> None:
        try:
            functions = _Loaded(name)
        except OSError as error:
            raise DriverError("no_driver", "dlopen", LIBRARY_NOT_FOUND, str(error)) from error
        if not hasattr(functions, "nvmlInitWithFlags"):
            raise DriverError("no_driver", "dlsym", LIBRARY_NOT_FOUND, f"{name} is not the library of a driver")
        # Four megabytes that a machine without a driver need not have.
        import pynvml

        self.api: Any = pynvml
        self._path = _path_of(functions)
        before = pynvml.nvmlLib
        if before is not None and before._handle == functions._handle:
            # A collector before this one loaded it, maybe from a file that is not there any more.
            functions = before
        else:
            functions.file = _file_at(self._path)
            pynvml.nvmlLib = functions
        self.functions: _Loaded = functions

    def outdated(self) -> bool:
        """Whether another file lies where the library was loaded from. False while there is none."""
        return _file_at(self._path) not in (None, self.functions.file)


class Session:
    """The library, initialised until `close`. Raises DriverError if it does not initialise; may take seconds."""

    def __init__(self, library: Library) -> None:
        self._functions = library.functions
        self.api = library.api
        self._open = True
        self.call("nvmlInit")

    def close(self) -> None:
        try:
            self.call("nvmlShutdown")
        finally:
            self._open = False

    def call(self, function: str, *arguments: Any) -> Any:
        """nvidia-ml-py's function of that name. Raises DriverError."""
        if not self._open:
            raise self.error(function, UNINITIALIZED)
        found = getattr(self.api, function, None)
        if found is None:
            raise self.error(function, FUNCTION_NOT_FOUND)
        try:
            return found(*arguments)
        except self.api.NVMLError as error:
            raise self.error(function, error.value) from error
        except UnicodeDecodeError as error:
            raise self.error(function, UNKNOWN) from error

    def raw(self, function: str, *arguments: Any) -> None:
        """The library's own function, for what nvidia-ml-py does not get right. Raises DriverError."""
        if not self._open:
            raise self.error(function, UNINITIALIZED)
        found = getattr(self._functions, function, None)
        code = FUNCTION_NOT_FOUND if found is None else found(*arguments)
        if code:
            raise self.error(function, code)

    def error(self, function: str, code: int) -> DriverError:
        return DriverError(_FAULTS.get(code, "transient"), function, code, str(self.api.NVMLError(code)))


class _Symbol(ctypes.Structure):
    """What dladdr(3) tells of an address: Dl_info."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _path_of(library: ctypes.CDLL) -> str:
    """Where the loader found the library. Not from /proc/self/maps, which has the path behind the links: an update
    turns the link, and may leave the old file."""
    symbol = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.cast(library.nvmlInitWithFlags, ctypes.c_void_p), ctypes.byref(symbol))
    return os.fsdecode(symbol.path or b"")


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - the loader's path as it is, "" where it tells none
    except OSError:
        return None
    return found.st_dev, found.st_ino
