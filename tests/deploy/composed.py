"""deploy/compose as docker compose reads it, and its services as rules for containers under crun."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deploy.containers import Rules

DIRECTORY = Path(__file__).parents[2] / "deploy" / "compose"
FILE = DIRECTORY / "compose.yaml"

Service = Mapping[str, Any]


def services(file: Path = FILE) -> Mapping[str, Service]:
    """By name, each variable with its default."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", file.read_text())
    assert "${" not in text
    found: dict[str, Service] = yaml.safe_load(text)["services"]
    return found


def binds(service: Service) -> Mapping[str, Path]:
    """The file or directory of the host by the path that it is mounted at, all of them read-only."""
    every = [volume for volume in service["volumes"] if volume["type"] == "bind"]
    assert all(volume["read_only"] for volume in every)
    return {volume["target"]: DIRECTORY / volume["source"] for volume in every}


def volumes(service: Service) -> Sequence[str]:
    """Where it has named volumes."""
    return [volume["target"] for volume in service["volumes"] if volume["type"] == "volume"]


def rules(service: Service, **more: Any) -> Rules:
    """What it may. more: fields that are not in the file, or win over it."""
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    devices = [entry.split(":") for entry in service.get("devices", ())]
    assert all(outer == inner and rights == "r" for outer, inner, rights in devices)
    found = {
        "user": service.get("user"),
        "capabilities": [f"CAP_{name}" for name in service.get("cap_add", ())],
        "devices": [Path(outer) for outer, _, _ in devices],
        "binds": {str(source): target for target, source in binds(service).items()},
        "environment": service.get("environment", {}),
        "memory": megabytes(service["mem_limit"]) << 20 if "mem_limit" in service else 1 << 30,
    }
    return Rules(**{key: value for key, value in {**found, **more}.items() if value is not None})


def megabytes(size: str) -> int:
    """Of what compose and systemd call 256m and 256M."""
    found = re.fullmatch(r"(\d+)[mM]", size)
    assert found is not None, size
    return int(found[1])
