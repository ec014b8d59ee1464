"""Bytes of KV memory per token from a model's config.json, for engines that do not tell."""

import logging
from pathlib import Path

from oomcast.logs import OnChange


class TokenBytes:
    """path: a config.json or the folder of one, None where the settings have none. dtype: of the cache, as the engine
    was told. ranks: over how many tensor-parallel ranks the model is split."""

    def __init__(self, path: Path | None, dtype: str, ranks: int, changes: OnChange) -> None:
        self._path = path
        self._dtype = dtype
        self._ranks = ranks
        self._changes = changes
        self._stamp: int | None = None
        self._bytes: int | None = None

    def get(self) -> int | None:
        """Of one rank; None, and told once, where the file says nothing that is understood. It is read again when it
        changes."""
        if self._path is None:
            return None
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp != self._stamp:
                self._stamp = stamp
                self._bytes = self._computed(self._path)
        except (OSError, ValueError) as error:
            self._bytes = None
            self._changes.report("config", str(error), logging.WARNING, f"{self._path}: {error}")
        return self._bytes

    def _computed(self, path: Path) -> int:
        # Here, since most engines tell it themselves.
        from oomcast.kv.fields import load
        from oomcast.kv.memory import bytes_per_token

        return bytes_per_token(load(path), self._dtype, self._ranks)
