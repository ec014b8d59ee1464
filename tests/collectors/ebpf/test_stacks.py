"""`oomcast stacks` on a real process."""

import json
import os
import subprocess
import sys

import pytest

from ebpf_lab.lab import Target, build
from requires import needs

STACKS = (sys.executable, "-m", "oomcast", "stacks")


def ask(*options: str) -> tuple[int, str, str]:
    done = subprocess.run([*STACKS, *options], capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout, done.stderr


@needs("ebpf", "cc")
def test_what_a_process_keeps_is_told_by_stack() -> None:
    with Target(build("leak")) as target:
        command = [*STACKS, "--pid", str(target.pid), "--seconds", "3", "--top", "2", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asking:
            assert asking.stdout is not None
            assert asking.stderr is not None
            assert asking.stderr.readline() == f"oomcast: following process {target.pid} for 3 s\n"
            target.step()
            said = json.loads(asking.stdout.read())
            assert asking.wait(60) == 0
    first, second = said
    assert (first["bytes"], first["blocks"]) == (1 << 20, 1)
    assert first["frames"][0].startswith("use_malloc+")
    assert second["frames"][0].startswith("use_malloc+")
    assert second["bytes"] == 50 * second["bytes"] // second["blocks"]


@needs("ebpf", "cc")
def test_a_process_without_the_functions_cannot_be_asked() -> None:
    code, out, err = ask("--pid", str(os.getpid()), "--kind", "cuda", "--seconds", "1")
    assert (code, out) == (1, "")
    assert err == f"oomcast: process {os.getpid()} has ended, or no function of cuda\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--pid", "99999999"), "there is no process 99999999"),
        (("--pid", "1", "--kind", "moon"), "moon is neither libc, mmap, brk nor a pair that is known"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], complaint: str) -> None:
    assert ask(*options) == (2, "", f"oomcast: {complaint}\n")
