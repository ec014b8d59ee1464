"""`oomcast` and `python -m oomcast`."""

import sys

from oomcast.cli import run


def main() -> None:
    run(sys.argv[1:])


if __name__ == "__main__":
    main()
