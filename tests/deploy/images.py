"""Container images, built by buildah from the real Containerfile, without an engine and without a registry.

What stands in for the image debian:bookworm-slim is the small Debian that scripts/setup deploy unpacks.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from host import cache

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/debian:bookworm-slim"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Machines whose registries are reached through a proxy have its certificate there."""

_SLIM = ("doc", "man", "info", "locale")
"""What Debian's slim images leave out, below /usr/share, of packages that are installed later too."""


class Images:
    """A storage of images and layers in `directory`, which close() empties. Takes root."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        storage = directory / "storage.conf"
        storage.write_text(
            f'[storage]\nrunroot = "{directory}/run"\ngraphroot = "{directory}/root"\ndriver = "overlay"\n'
        )
        # Nobody but root in a user namespace could do without chroot's, and it needs no cgroups.
        self._environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(storage), "BUILDAH_ISOLATION": "chroot"}
        self._environment.pop("DOCKER_HOST", None)

    def add_base(self) -> None:
        """Makes the image that a Containerfile begins with."""
        tree = self._directory / "base"
        subprocess.run(["cp", "-a", "--reflink=auto", cache() / "debian" / "base", tree], check=True, timeout=300)
        for name in _SLIM:
            shutil.rmtree(tree / "usr/share" / name, ignore_errors=True)
        excluded = "".join(f"path-exclude /usr/share/{name}/*\n" for name in _SLIM)
        (tree / "etc/dpkg/dpkg.cfg.d/docker").write_text(excluded)
        # These two tell of the machine that it was unpacked on.
        for name in ("resolv.conf", "hostname"):
            (tree / "etc" / name).unlink(missing_ok=True)
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", container, str(tree), "/")
        self.buildah("commit", "--quiet", "--rm", container, BASE)
        shutil.rmtree(tree)

    def build(self) -> str:
        """Runs scripts/build-image; gives what it said."""
        argv = [ROOT / "scripts/build-image", "--with", "buildah", "--pull-never"]
        # Over the one that is in the base, so that no layer has it.
        volume = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
        return self._run([*map(str, argv), *volume], 900)

    def buildah(self, *arguments: str) -> str:
        return self._run(["buildah", *arguments], 300)

    def settings(self, image: str) -> Mapping[str, Any]:
        """Its configuration: User, Env, Entrypoint, Cmd, Labels, ExposedPorts .."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", image))["OCIv1"]["config"]
        return found

    def history(self, image: str) -> Sequence[str]:
        """The commands that made it."""
        found = json.loads(self.buildah("inspect", "--type", "image", image))["OCIv1"]["history"]
        return [step.get("created_by", "") for step in found]

    @contextmanager
    def mounted(self, image: str) -> Iterator[Path]:
        """A container's root directory of it."""
        container = self.buildah("from", "--pull-never", image).strip()
        try:
            yield Path(self.buildah("mount", container).strip())
        finally:
            self.buildah("rm", container)

    def compressed(self, image: str) -> Sequence[int]:
        """Bytes of each of its layers as a registry keeps them, the lowest one first."""
        place = self._directory / "pushed"
        self.buildah("push", "--quiet", image, f"oci:{place}")
        (pushed,) = json.loads((place / "index.json").read_text())["manifests"]
        manifest = json.loads((place / "blobs" / pushed["digest"].replace(":", "/")).read_text())
        return [layer["size"] for layer in manifest["layers"]]

    def layers(self, image: str) -> int:
        """How many it has."""
        found = json.loads(self.buildah("inspect", "--type", "image", image))
        return len(found["OCIv1"]["rootfs"]["diff_ids"])

    def close(self) -> None:
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")
        # Mounted on itself by the overlay driver.
        subprocess.run(["umount", self._directory / "root/overlay"], check=False, capture_output=True, timeout=60)
        shutil.rmtree(self._directory)

    def _run(self, argv: Sequence[str], seconds: float) -> str:
        done = subprocess.run(
            argv, env=self._environment, capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
        )
        assert done.returncode == 0, f"{' '.join(argv)}: {(done.stdout + done.stderr)[-4000:]}"
        return done.stdout
