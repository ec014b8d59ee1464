"""Writes grafana/dashboards. --check says what is out of date, and ends with 1."""

import argparse
import sys

from boards.files import files


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m boards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = [(path, text) for path, text in files() if not path.exists() or path.read_text() != text]
    for path, text in stale:
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        sys.stdout.write(f"{path.name}: {'not up to date' if check else 'written'}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
