"""A real vLLM on the CPU, as scripts/setup engines installs it, serving the tiny model on loopback."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import httpx
from prometheus_client.parser import text_string_to_metric_families

from e2e.program import group_members
from e2e.stack import fetch, free_port
from host import ENGINES

START_SECONDS = 200.0
"""It takes 25 on a machine at rest and five times that beside other work."""

END_SECONDS = 20.0
LIFETIME = 900
"""Seconds after which an engine ends by itself, should the tests have been killed before they could end it."""

KV_GIB = 1
"""Memory of the KV pool, where no number of blocks is given."""


class Vllm:
    """port: the same after a restart. log: what all its processes wrote, over all starts.

    temporary: a folder for its sockets and what it leaves behind.
    """

    def __init__(
        self, directory: Path, temporary: Path, model: Path, flags: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = directory / "vllm.log"
        self._environment = {**os.environ, **_environment(temporary), **environment}
        server = [str(ENGINES / "bin/python"), "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
        listen = ["--host=127.0.0.1", f"--port={self.port}", "--served-model-name=tiny"]
        # Weights that are made up, and no compilation: a start takes half a minute instead of several.
        cheap = ["--load-format=dummy", "--dtype=bfloat16", "--enforce-eager"]
        # On a node it computes on GPUs: here what shares its cores with it must not wait for it.
        self._command = ["timeout", "--signal=KILL", str(LIFETIME), "nice", *server, *listen, *cheap, *flags]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Starts it and waits until it can be asked. Raises AssertionError, with its log, if it does not get there."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment, process_group=0)
        self._process = process
        end = time.monotonic() + START_SECONDS
        while not self.healthy():
            ended = process.poll()
            if ended is not None or time.monotonic() > end:
                raise AssertionError(f"vLLM did not start, exit code {ended}\n{self.log[-6000:]}")
            time.sleep(0.25)

    def healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False, verify=False).status_code == 200
        except httpx.HTTPError:
            return False

    def kill_core(self) -> None:
        """SIGKILL to the process with the model, as the kernel's OOM killer does it."""
        assert self._process is not None
        (core,) = (pid for pid in group_members(self._process.pid) if _command_name(pid).startswith("VLLM::EngineCor"))
        os.kill(core, signal.SIGKILL)

    def end(self) -> None:
        """Ends all its processes: politely, so that it removes its shared memory, then by force."""
        process = self._process
        if process is None:
            return
        process.terminate()
        end = time.monotonic() + END_SECONDS
        while (left := group_members(process.pid)) and time.monotonic() < end:
            time.sleep(0.1)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples on its /metrics that have the name and these labels."""
        families = text_string_to_metric_families(fetch(f"{self.url}/metrics"))
        samples = (sample for family in families for sample in family.samples if sample.name == name)
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def info(self, name: str) -> Mapping[str, str]:
        """The labels of a sample on its /metrics. Raises ValueError unless there is one of that name."""
        families = text_string_to_metric_families(fetch(f"{self.url}/metrics"))
        (labels,) = (sample.labels for family in families for sample in family.samples if sample.name == name)
        return labels


@contextmanager
def vllm(
    directory: Path, model: Path, *flags: str, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Vllm]:
    """A running vLLM with these flags; ended afterwards. environment: variables of its own."""
    # Apart from `directory`, whose path may be too long for its sockets.
    with TemporaryDirectory(prefix="vllm-") as temporary:
        server = Vllm(directory, Path(temporary), model, flags, environment)
        try:
            server.start()
            yield server
        finally:
            server.end()


def _environment(temporary: Path) -> Mapping[str, str]:
    # What vLLM finds out about its models at the first start saves the next ones half of theirs.
    caches = {name: str(ENGINES / "cache") for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME")}
    return {
        **caches,
        "TMPDIR": str(temporary),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
        # One thread that runs where there is room: by itself it binds one to each core, and starves the tests.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }


def _command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""
