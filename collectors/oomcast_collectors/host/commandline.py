"""What a command line says about which program it is, beyond argv[0]: the script or module of an interpreter."""

import re

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]?\Z", re.IGNORECASE)
_NODE = re.compile(r"node(?:js)?\Z", re.IGNORECASE)
_PYTHON_TAKES = frozenset("XW")
_NODE_TAKES = frozenset({"-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions"})
_NODE_CODE = ("-e", "--eval", "-p", "--print")
_SUFFIXES = (".py", ".pyc", ".pyz", ".js", ".mjs", ".cjs")
_LONGEST = 255


def names_of(cmdline: bytes) -> list[str]:
    """The names under which /proc/PID/cmdline can be known, the most direct first.

    The basename of argv[0]; for Python and Node also the basename of the script, with and without its suffix, or the
    module after -m and its top package. Bytes that are no UTF-8 become backslash escapes. [] for an empty one.
    """
    argv = [a.decode("utf-8", "backslashreplace") for a in cmdline.rstrip(b"\0").split(b"\0")]
    program = _base(argv[0])
    names = [program]
    if _PYTHON.match(program):
        names += _python(argv[1:])
    elif _NODE.match(program):
        names += _node(argv[1:])
    return list(dict.fromkeys(n[:_LONGEST] for n in names if n))


def _python(args: list[str]) -> list[str]:
    waiting = False
    for i, arg in enumerate(args):
        if waiting:
            waiting = False
        elif arg == "--check-hash-based-pycs":
            waiting = True
        elif not arg.startswith("-"):
            return _script(arg)
        elif arg == "-":
            return []
        elif not arg.startswith("--"):
            letter, rest = _with_argument(arg)
            if letter == "m":
                return _module(rest or "".join(args[i + 1 : i + 2]))
            if letter == "c":
                return []
            waiting = bool(letter) and not rest
    return []


def _with_argument(arg: str) -> tuple[str, str]:
    """The option of a cluster (`-um`) that takes an argument, and what of it is attached (`-mvllm`)."""
    for at, letter in enumerate(arg[1:], 2):
        if letter in "mc" or letter in _PYTHON_TAKES:
            return letter, arg[at:]
    return "", ""


def _node(args: list[str]) -> list[str]:
    waiting = False
    for arg in args:
        if waiting:
            waiting = False
        elif arg in _NODE_CODE:
            return []
        elif arg in _NODE_TAKES:
            waiting = True
        elif not arg.startswith("-"):
            return _script(arg)
    return []


def _module(name: str) -> list[str]:
    return [name, name.partition(".")[0]]


def _script(path: str) -> list[str]:
    base = _base(path)
    stem = next((base.removesuffix(s) for s in _SUFFIXES if base.endswith(s)), base)
    if stem in ("__main__", "index"):
        # The name of a program that is started by its folder's file is the folder's.
        return [base, _base(path.removesuffix(base).rstrip("/"))]
    return [base, stem]


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
