"""A gpu collector that is replaced on SIGHUP, with all that the one before it left in the process."""

import shutil
from pathlib import Path

from collectors.gpu.driver import FakeDriver
from e2e.gpus import Gpus, gpus
from e2e.program import until
from requires import needs

pytestmark = needs("cc")

GIB = 1 << 30


def settings(node_settings: str) -> str:
    others = "cgroup: {enabled: false}, host: {enabled: false}, kernel_log: {enabled: false}"
    return f'http: {{listen: "127.0.0.1:{{port}}"}}\ncollectors: {{{others}, gpu: {{{node_settings}}}}}\n'


def test_a_driver_that_is_replaced_while_the_collector_is_off(driver: FakeDriver, tmp_path: Path) -> None:
    library = driver.library
    driver.library = tmp_path / "lib" / library.name
    driver.library.parent.mkdir()
    shutil.copy(library, driver.library)
    driver.set(strict_version=1)
    driver.write()
    with gpus(driver, tmp_path) as node:
        switch(node, "enabled: false")
        until(lambda: node.value("gpu_up", 0) is None)
        aside = driver.library.with_suffix(".new")
        shutil.copy(library, aside)
        aside.replace(driver.library)
        driver.set(driver="590.10.01")
        driver.write()
        switch(node, "enabled: true")
        node.daemon.heard("READY=1")
        until(lambda: node.value("gpu_up", 0) == 1)
        assert node.info(0)["driver"] == "590.10.01"
        assert "restarting the whole process" in node.daemon.log


def threads(node: Gpus) -> int:
    return len(list(Path(f"/proc/{node.daemon.process.pid}/task").iterdir()))


def switch(node: Gpus, text: str) -> None:
    node.daemon.settings(settings(text))
    node.daemon.reload()


def test_what_hung_in_the_driver_leaves_nothing_when_it_comes_back(driver: FakeDriver, tmp_path: Path) -> None:
    with gpus(driver, tmp_path) as node:
        switch(node, "enabled: false")
        until(lambda: node.value("gpus") is None)
        before = threads(node)
        switch(node, "enabled: true")
        until(lambda: node.value("gpu_up", 1) == 1)
        driver.gpus[1].set(hang=1)
        driver.write()
        until(lambda: node.value("gpu_state", 1, oomcast_gpu_state="stuck") == 1)
        switch(node, "window: 30")
        until(lambda: node.value("gpu_state", 1, oomcast_gpu_state="stuck") == 1)
        node.set_and_await_used(0, 31 * GIB)
        driver.gpus[1].set(hang=None)
        driver.write()
        until(lambda: node.value("gpu_up", 1) == 1)
        node.set_and_await_used(1, 32 * GIB)
        switch(node, "enabled: false")
        until(lambda: threads(node) <= before)
        assert node.daemon.end()[0] == 0
