"""The description of a probe: the file beside its program that says where that goes, and what its tables mean."""

import fnmatch
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from oomcast_collectors.host.files import read_once

SHIPPED = Path(__file__).parent / "probes"

_MOST_BYTES = 256 << 10
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
Function = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
Decoder = Literal["number", "text", "hex", "process", "signal"]


class DescriptionError(Exception):
    """A probe's files are not there, or not what they should be."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tracepoint(_Model):
    """function runs at each event, in whatever process it happens; optional: the probe works without it."""

    event: Annotated[str, Field(pattern=r"^[a-z0-9_]+:[a-z0-9_]+$")] = Field(description="category:name")
    function: Function
    optional: bool = False


class Uprobe(_Model):
    """Functions that run when a target enters and leaves a function of a library or of the program itself.

    library: patterns of file names, `libc.so*|ld-musl-*`; `@` is the program. symbol: its name, or /regular
    expression/. group: attached or not as a whole. shift: the entry may be probed a few instructions in, where the
    kernel need not execute one of them out of line; only for functions that read arguments and nothing else.
    """

    library: Annotated[str, Field(min_length=1, max_length=200)]
    symbol: Annotated[str, Field(min_length=1, max_length=200)]
    entry: Function | None = None
    leave: Function | None = None
    group: Name = "main"
    shift: bool = False

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if self.entry is None and self.leave is None:
            raise ValueError(f"{self.symbol}: needs entry, leave or both")
        if self.symbol.startswith("/"):
            try:
                re.compile(self.symbol.strip("/"))
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"{self.symbol}: {error}") from error
        return self

    def of(self, file: str, program: bool) -> bool:
        """Whether a mapped file of this name is meant; program: it is the executable."""
        patterns = self.library.split("|")
        return (program and "@" in patterns) or any(fnmatch.fnmatchcase(file, one) for one in patterns)


class Table(_Model):
    """A table of the program that becomes series: a u64 for each key (or one in all, without fields).

    table: hash, array or their per-CPU forms; values of CPUs are added up. key: how to read the key's fields, by name.
    """

    table: Function
    help: str = ""
    kind: Literal["counter", "gauge"] = "counter"
    key: Mapping[str, Decoder] = {}


class Description(_Model):
    """A probe. tables: by the name of the series' label. losses: a table of one u64, what could not be handed over."""

    help: Annotated[str, Field(min_length=1, max_length=500)]
    tracepoints: tuple[Tracepoint, ...] = ()
    uprobes: tuple[Uprobe, ...] = ()
    tables: Mapping[Name, Table] = {}
    constants: Mapping[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], int] = Field(
        {}, description="macros of the program, with their values"
    )

    @model_validator(mode="after")
    def _goes_somewhere(self) -> Self:
        if not self.tracepoints and not self.uprobes:
            raise ValueError("needs a tracepoint or an uprobe")
        return self


def is_shipped(name: str, folder: Path | None) -> bool:
    """Whether the probe of that name is one of ours; `folder` may replace it."""
    return folder is None or not (folder / f"{name}.yaml").exists()


def read(name: str, folder: Path | None) -> tuple[Description, str]:
    """The description and the program of a probe: NAME.yaml and NAME.c, in `folder` or as shipped.

    Raises DescriptionError, whose text names the file.
    """
    home = folder or SHIPPED
    try:
        home = SHIPPED if folder is None or is_shipped(name, folder) else folder
        texts = [_text(home / f"{name}{suffix}") for suffix in (".yaml", ".c")]
        return Description.model_validate(yaml.safe_load(texts[0])), texts[1]
    except OSError as error:
        raise DescriptionError(f"{error.filename or home / name}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DescriptionError(f"{home / name}.yaml: {where}: {first['msg']}") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise DescriptionError(f"{home / name}.yaml: {str(error)[:300]}") from error


def _text(path: Path) -> str:
    data = read_once(os.fspath(path), _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{path.name} is larger than {_MOST_BYTES} bytes")
    return data.decode()
