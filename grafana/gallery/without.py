"""Panels that have nothing to show in the pictures, by the key of their board, and why."""

from collections.abc import Mapping

CALM: Mapping[str, tuple[str, ...]] = {}
CRASHED: Mapping[str, tuple[str, ...]] = {}
