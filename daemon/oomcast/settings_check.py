"""Settings values against their models: the environment laid over the file, and pydantic's findings in our words."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from oomcast.restart import VARIABLE
from oomcast.settings_file import Document, KeyPath, Place, Problem, SettingsError, parse_value, shown
from oomcast.settings_keys import PREFIX, Leaf, known_keys, nearest

RESERVED = frozenset({"OOMCAST_CONFIG", "OOMCAST_REQUIRE", VARIABLE})
"""Variables with our prefix that are no settings: the settings file's path, what the tests must not skip, and the
time of the last restart."""

# Kubernetes sets these in every pod of a namespace that has a Service called oomcast or oomcast-something.
_SERVICE_LINK = re.compile(
    r"OOMCAST_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)\Z"
)

# What pydantic calls by JSON's names, in the words of the settings file.
_MESSAGES: Mapping[str, str] = {
    "string_type": "should be text (in quotes where it looks like something else)",
    "bool_type": "should be true or false",
    "int_type": "should be a whole number",
    "float_type": "should be a number",
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "set_type": "should be a list",
    "frozen_set_type": "should be a list",
    "dict_type": "should be a mapping",
    "model_type": "should be a mapping",
    "path_type": "should be a path",
}

M = TypeVar("M", bound=BaseModel)


def apply_environment(
    document: Document, environ: Mapping[str, str], known: Sequence[Leaf], left_out: Collection[str] = ()
) -> None:
    """Lays the OOMCAST_ variables over the document. left_out: collectors whose variables are not looked at."""
    by_name = {leaf.environment: leaf for leaf in known}
    ignored = tuple(f"{PREFIX}COLLECTORS__{name.upper()}__" for name in left_out)
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in RESERVED or name.startswith(ignored):
            continue
        if name in by_name:
            _set(document, by_name[name], name, environ[name])
        elif not _SERVICE_LINK.match(name):
            message = "no setting has this environment variable" + hint(name, [*by_name, *RESERVED])
            document.problems.append(Problem(Place(shown(name)), "", message))


def _set(document: Document, leaf: Leaf, name: str, text: str) -> None:
    try:
        value = parse_value(text, name)
        # A glob, an IPv6 address or a file called 1.5 need no quotes in a variable that can only be text.
        if leaf.is_text and value is not None and not isinstance(value, str):
            value = text
    except SettingsError as error:
        if not (leaf.is_text and text.isprintable()):
            document.problems.extend(problem._replace(key=".".join(leaf.path)) for problem in error.problems)
            return
        value = text
    target: Any = document.values
    for key in leaf.path[:-1]:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            return  # the file has something else in the section's place, which is reported
    target[leaf.path[-1]] = value
    document.places = {at: place for at, place in document.places.items() if at[: len(leaf.path)] != leaf.path}
    document.places[leaf.path] = Place(name)


def check(
    document: Document, model: type[M], path: tuple[str, ...], values: Any, known: tuple[str, ...] = ()
) -> M | None:
    """`values`, found at `path` of the document, as a `model`; or None, with the problems noted in the document.

    known: keys beside the model's own, for the hint at a misspelt one.
    """
    try:
        # From JSON, strict takes the text of a path and the list of a tuple, but no "1" or true for a number.
        return model.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            inner = _existing(values, detail["loc"])
            if detail["type"] == "missing":
                document.report((*path, *inner, detail["loc"][-1]), "is required")
            elif detail["type"] == "extra_forbidden":
                keys = (*known_keys(model, inner[:-1]), *(known if len(inner) == 1 else ()))
                document.report((*path, *inner), "unknown key" + hint(str(inner[-1]), keys))
            else:
                document.report((*path, *inner), _told(detail["type"], detail["msg"], detail["input"]))
        return None


def _told(kind: str, message: str, given: Any) -> str:
    message = _MESSAGES.get(kind) or re.sub(r"^(Value error, |Input (?=should ))", "", message)
    # Text is not repeated: it may be a password.
    return f"{message}, not {json.dumps(given)}" if given is None or isinstance(given, bool | int | float) else message


def _existing(values: Any, loc: KeyPath) -> KeyPath:
    """The part of a pydantic location that is in the document; the rest names alternatives of a union."""
    here, found = values, 0
    for part in loc:
        try:
            here = here[part]
        except (KeyError, IndexError, TypeError):
            break
        found += 1
    return loc[:found]


def hint(word: str, known: Sequence[str]) -> str:
    best = nearest(word, known)
    return f", did you mean {best!r}?" if best else ""
