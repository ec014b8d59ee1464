"""Runs BCC's memleak, for the interpreter that has BCC: `drive_memleak.py PATH ARGUMENT..`

BCC calls this C function with six of its seven arguments (iovisor/bcc#5236), and the kernel refuses what is then in the
seventh wherever others have a probe at the same function.
"""

import ctypes
import runpy
import sys

from bcc.libbcc import lib  # type: ignore[import-not-found] # not in this environment, but in that one


def main() -> None:
    attach = lib.bpf_attach_uprobe
    attach.argtypes = [
        *(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p),
        *(ctypes.c_uint64, ctypes.c_int, ctypes.c_uint32),
    ]
    lib.bpf_attach_uprobe = lambda *arguments: attach(*arguments, 0)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
