"""What is laid over a bare Debian node: the program, its unit and settings, as a package puts them there."""

import compileall
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
SHIPPED = CHECKOUT / "deploy" / "systemd"
PROGRAM = "/usr/lib/oomcast"
_CONFIG = "home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}\n"
_SCRIPT = f"#!{PROGRAM}/bin/python3\nfrom oomcast.__main__ import main\n\nmain()\n"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def install(root: Path, python: str) -> None:
    """Makes the virtual environment of the node's own Python (3.11), the link to it, user and settings below `root`."""
    program = root / PROGRAM[1:]
    packages = program / "lib" / f"python{python}" / "site-packages"
    packages.mkdir(parents=True)
    (program / "bin").mkdir()
    (program / "bin" / "python3").symlink_to("/usr/bin/python3")
    (program / "pyvenv.cfg").write_text(_CONFIG.format(version=python))
    for name in ("daemon/oomcast", "collectors/oomcast_collectors"):
        source = CHECKOUT / name
        shutil.copytree(source, packages / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for found in needed("oomcast"):
        _copy(found, packages)
    compileall.compile_dir(packages, quiet=2, stripdir=root, workers=2)
    script = program / "bin" / "oomcast"
    script.write_text(_SCRIPT)
    script.chmod(0o755)
    _put(root / "usr/bin/oomcast").symlink_to(f"{PROGRAM}/bin/oomcast")
    shutil.copy(SHIPPED / "oomcast.service", _put(root / "usr/lib/systemd/system/oomcast.service"))
    shutil.copy(SHIPPED / "oomcast.sysusers.conf", _put(root / "usr/lib/sysusers.d/oomcast.conf"))
    shutil.copy(SHIPPED / "oomcast.yaml", _put(root / "etc/oomcast/oomcast.yaml"))


def needed(name: str) -> Iterator[Distribution]:
    """What a distribution of this environment runs on, each once, without itself."""
    seen, waiting = {name}, [name]
    while waiting:
        one = distribution(waiting.pop())
        if one.metadata["Name"] != name:
            yield one
        for text in one.requires or ():
            requirement, _, marker = text.partition(";")
            matched = _NAME.match(requirement)
            assert matched is not None, text
            wanted = matched[0].lower().replace("_", "-")
            if "extra" not in marker and wanted not in seen and _applies(marker):
                seen.add(wanted)
                waiting.append(wanted)


def _applies(marker: str) -> bool:
    return not re.search(r"win32|Windows|python_version *< *[\"']3\.(?:[0-9]|1[01])[\"']|emscripten|jython", marker)


def _copy(found: Distribution, packages: Path) -> None:
    for file in found.files or ():
        source = Path(str(found.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
            shutil.copy(source, _put(packages / file))


def _put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
