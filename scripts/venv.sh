# shellcheck shell=bash
# What the scripts that set up share: virtual environments, and what is said. Sourced, not run.

# Without ensurepip, venv leaves a half environment behind that has a python and no pip.
venv_is_whole() {
  grep -qsF "$(pwd -P)/$1" "$1/bin/activate" && "$1/bin/python" -m pip --version >/dev/null 2>&1
}

is_new_enough() {
  [ -n "$1" ] && "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

base_of() {
  "$1" -I -S -c 'import os, sys; print(sys.version, os.path.realpath(sys.executable))' 2>/dev/null || echo "no $1"
}

# The distribution's python comes first: it is built with profiling, and 13 to 20 % faster than one that is not.
choose_python() {
  local wanted=$1 candidate
  if [ -n "$wanted" ]; then
    is_new_enough "$wanted" || fail "PYTHON=$wanted is not a Python 3.11 or newer."
    echo "$wanted"
    return
  fi
  for candidate in /usr/bin/python3 "${PYTHON:-}" python3.13 python3.12 python3.11; do
    if is_new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "oomcast needs Python 3.11 or newer, and neither /usr/bin/python3, \$PYTHON nor python3.11 to python3.13 on the" \
    "PATH is one. Install one (Ubuntu 22.04: apt-get install python3.11 python3.11-venv), or name it: make PYTHON=…"
}

make_venv() {
  local python=$1 venv=$2 version
  say "making $venv with $python, as its packages are kept apart from the system's"
  if try_venv "$python" "$venv"; then
    return
  fi
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  # Only the distribution's own python can be completed with the distribution's packages.
  case "$(command -v "$python")" in
    /usr/bin/* | /bin/*)
      scripts/apt-install "without it $python cannot make a virtual environment" "python$version-venv"
      try_venv "$python" "$venv" && return
      ;;
  esac
  "$python" -m venv --clear "$venv" >&2 || true
  fail "$python cannot make a virtual environment, see above."
}

try_venv() {
  "$1" -m venv --clear "$2" >/dev/null 2>&1 && venv_is_whole "$2"
}

have() {
  local name
  for name in "$@"; do
    command -v "$name" >/dev/null || return 1
  done
}

say() { echo "setup: $*" >&2; }

fail() {
  say "$*"
  exit 1
}
