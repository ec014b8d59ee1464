"""Which keys settings models have: for messages, environment names and the example file."""

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

PREFIX = "OOMCAST_"


class Leaf(NamedTuple):
    """A key that holds a value and no further section. path: from the top of the file."""

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def environment(self) -> str:
        return PREFIX + "__".join(self.path).upper()

    @property
    def is_text(self) -> bool:
        """Whether the value is text (or nothing) and never a number, a truth value or a list."""
        kinds = _alternatives(self.field.annotation)
        return bool(kinds) and all(_is_text(kind) for kind in kinds)


def leaves(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[Leaf]:
    for name, field in model.model_fields.items():
        section = as_model(field.annotation)
        if section is None:
            yield Leaf((*prefix, name), field)
        else:
            yield from leaves(section, (*prefix, name))


def as_model(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def known_keys(model: type[BaseModel], path: Sequence[str | int]) -> tuple[str, ...]:
    """The keys of the model found at `path` inside `model`; none where there is no single model."""
    here: Any = model
    for key in path:
        here = _step(here, key)
    models = [found for kind in _alternatives(here) if (found := as_model(kind))]
    return tuple(models[0].model_fields) if len(models) == 1 else ()


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be; `word` may have any length."""
    found = difflib.get_close_matches(word[:100].lower(), {name.lower(): name for name in known}, n=1, cutoff=0.6)
    return next((name for name in known if found and name.lower() == found[0]), None)


def _step(annotation: Any, key: str | int) -> Any:
    for kind in _alternatives(annotation):
        if isinstance(key, str) and (model := as_model(kind)) and key in model.model_fields:
            return model.model_fields[key].annotation
        origin, arguments = get_origin(kind), get_args(kind)
        if not (isinstance(origin, type) and arguments):
            continue
        if isinstance(key, str) and issubclass(origin, Mapping):
            return arguments[1]
        if isinstance(key, int) and issubclass(origin, Sequence | Set):
            return arguments[0]
    return None


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(
            kind for part in get_args(annotation) for kind in _alternatives(part) if kind is not types.NoneType
        )
    return (annotation,)


def _is_text(kind: Any) -> bool:
    if isinstance(kind, type):
        return issubclass(kind, str | Path)
    return bool(get_args(kind)) and all(isinstance(value, str) for value in get_args(kind))
