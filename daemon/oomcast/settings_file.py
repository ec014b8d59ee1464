"""Settings text: YAML to plain values, with the place of every key, and one clear problem for all that is wrong.

The accepted YAML is what a settings file needs: one document of mappings, lists and scalars. Aliases (which can
expand to any size) and tags (which can construct any object) are refused instead of being limited.
"""

import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_SHOWN = 50

KeyPath = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NON_PRINTABLE = yaml.reader.Reader.NON_PRINTABLE
_CORE_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "null")}
# YAML 1.1 asks for a dot in a float; everyone who writes 1e-3 means the number.
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+\Z")


class Place(NamedTuple):
    """Where a value was written: a file with line and column (from 1), or an environment variable."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (shown(self.source, 4096), *self[1:]) if part is not None)


class Problem(NamedTuple):
    """One thing that is wrong. key: dotted, "" when it is the file as a whole."""

    place: Place
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.key, self.message) if part)


class SettingsError(ValueError):
    """Settings that cannot be used; `problems` has everything that is wrong, its text one line for each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"and {len(self.problems) - MAX_SHOWN} more problems")
        super().__init__("\n".join(lines))


@dataclass(slots=True)
class Document:
    """values: nested dicts, lists and scalars. places: of every key and list item, by its path."""

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _reported: set[KeyPath] = field(default_factory=set)

    def report(self, path: KeyPath, message: str) -> None:
        """Notes the first problem of the value at `path`, with the nearest place that is known on the way there."""
        if path in self._reported:
            return
        self._reported.add(path)
        at = path
        while at and at not in self.places:
            at = at[:-1]
        self.problems.append(Problem(self.places.get(at, Place(self.source)), dotted(path), message))


def dotted(path: KeyPath) -> str:
    """`collectors.engines.targets[2].url`; what a terminal or a log could misread is escaped, long keys are cut."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in path)
    return text.removeprefix(".")


def shown(text: str, limit: int = 80) -> str:
    cut = text if len(text) <= limit else text[:limit] + "…"
    return cut if cut.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def read_file(path: Path) -> Document:
    """The document in a settings file. Raises SettingsError when it cannot be read as YAML at all."""
    return parse(_text(path), str(path))


def parse(text: str, source: str) -> Document:
    """The document in `text`; an empty one is a document without keys."""
    document = Document(source)
    root = _compose(text, source)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == "tag:yaml.org,2002:null"):
        return document
    if not isinstance(root, yaml.MappingNode):
        raise SettingsError([Problem(_place(source, root.start_mark), "", "must hold `key: value` lines")])
    document.values = _value(document, root, ())
    return document


def parse_value(text: str, source: str) -> Any:
    """One value in YAML's flow style, as an environment variable holds it. Raises SettingsError."""
    document = Document(source)
    try:
        root = _compose(text, source)
        value = None if root is None else _value(document, root, ())
    except SettingsError as error:
        document.problems.extend(error.problems)
    if document.problems:
        # Lines and columns of one variable would only be taken for those of a file.
        raise SettingsError(problem._replace(place=Place(source)) for problem in document.problems)
    return value


def _text(path: Path) -> str:
    try:
        data = _bytes(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError([Problem(Place(str(path)), "", f"cannot be read: {reason}")]) from None
    if len(data) > MAX_BYTES:
        raise SettingsError([Problem(Place(str(path)), "", f"is larger than {MAX_BYTES} bytes")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError([Problem(Place(str(path), line), "", "is not UTF-8 text")]) from None


def _bytes(path: Path) -> bytes:
    # Without O_NONBLOCK the open of a pipe that nobody writes to would never return.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a regular file")
        return file.read(MAX_BYTES + 1)


def _compose(text: str, source: str) -> yaml.Node | None:
    if odd := _NON_PRINTABLE.search(text):
        line = text.count("\n", 0, odd.start()) + 1
        raise SettingsError([Problem(Place(source, line), "", f"holds the character {odd[0]!a}")])
    try:
        for problem in _unwanted(text, source):
            raise SettingsError([problem])
        root: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(source, mark) if mark else Place(source)
        raise SettingsError([Problem(place, "", _syntax(error, text))]) from None
    except yaml.YAMLError as error:
        raise SettingsError([Problem(Place(source), "", f"is not YAML: {shown(str(error))}")]) from None
    return root


def _unwanted(text: str, source: str) -> Iterator[Problem]:
    """Checked on the event stream, before anything recursive sees the document."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            yield Problem(_place(source, event.start_mark), "", f"is nested deeper than {MAX_DEPTH} levels")
        if count > MAX_NODES:
            yield Problem(_place(source, event.start_mark), "", f"holds more than {MAX_NODES} keys and values")
        if isinstance(event, yaml.AliasEvent):
            alias = f"*{shown(str(event.anchor))} is a YAML alias, which is not supported; quote it if it is text"
            yield Problem(_place(source, event.start_mark), "", alias)
        elif (tag := getattr(event, "tag", None)) is not None:
            yield Problem(_place(source, event.start_mark), "", f"the tag {shown(tag)} is not supported")


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    if isinstance(error, yaml.composer.ComposerError):
        return "holds more than one YAML document"
    message = "is not YAML: " + shown(str(error.problem or error.context), 160)
    mark = error.problem_mark
    if mark is None:
        return message
    line = text.splitlines()[mark.line : mark.line + 1]
    if line and "\t" in line[0][: mark.column + 1]:
        return f"{message}; a tab cannot indent, use spaces"
    if line and re.search(r":\s+[\[{@`%&*]", line[0]):
        return f"{message}; put the value in quotes if it is text"
    return message


def _place(source: str, mark: Any) -> Place:
    return Place(source, mark.line + 1, mark.column + 1)


def _value(document: Document, node: yaml.Node, path: KeyPath) -> Any:
    document.places.setdefault(path, _place(document.source, node.start_mark))
    if isinstance(node, yaml.MappingNode):
        return _mapping(document, node, path)
    if isinstance(node, yaml.SequenceNode):
        return [_value(document, item, (*path, index)) for index, item in enumerate(node.value)]
    try:
        return _scalar(node)
    except ValueError as error:
        document.report(path, str(error))
        return None


def _mapping(document: Document, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        place = _place(document.source, key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            document.problems.append(Problem(place, dotted(path), "a key must be plain text"))
            continue
        # As it is written, so that `on:` or `1:` stay what the reader of the file sees.
        key = str(key_node.value)
        here = (*path, key)
        if key in values:
            first = document.places[here].line
            document.problems.append(Problem(place, dotted(here), f"is set twice, first in line {first}"))
            continue
        document.places[here] = place
        values[key] = _value(document, value_node, here)
    return values


def _scalar(node: yaml.Node) -> Any:
    text = str(node.value)
    if node.tag not in _CORE_TAGS or ":" in text:
        # With a colon it is YAML 1.1's base 60, and 10:30 has never meant 630 to the one who wrote it.
        plain = getattr(node, "style", None) in (None, "")
        return float(text) if plain and _EXPONENT.match(text) else text
    try:
        value = yaml.SafeLoader("").construct_object(node)
    except ValueError:
        raise ValueError(f"{shown(text)} is not a number") from None
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("NaN is not a value")
    return value
