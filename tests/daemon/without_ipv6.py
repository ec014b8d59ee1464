"""Executes a command for which the kernel has no IPv6, as where it was started with ipv6.disable=1.

python3 without_ipv6.py COMMAND..; a seccomp filter (linux/seccomp.h, linux/filter.h), x86-64 only.
"""

import ctypes
import errno
import os
import socket
import struct
import sys

_SOCKET = 41
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FIRST_ARGUMENT = 0, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

FILTER = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 0, 3, _SOCKET),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 0, 1, socket.AF_INET6),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
)


def main() -> None:
    kernel = ctypes.CDLL(None, use_errno=True)
    text = ctypes.create_string_buffer(FILTER, len(FILTER))
    program = struct.pack("HxxxxxxP", len(FILTER) // 8, ctypes.addressof(text))
    for call in ((_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, program, 0, 0)):
        if kernel.prctl(*call):
            raise OSError(ctypes.get_errno(), "no filter can be set")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
