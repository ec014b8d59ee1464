"""A probe of which only its description is known: its tables are counted as it says."""

import ctypes
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

from oomcast_collectors.ebpf import metrics
from oomcast_collectors.ebpf.child.bcc import EbpfError
from oomcast_collectors.ebpf.child.part import Process, Tools
from oomcast_collectors.ebpf.child.program import Program
from oomcast_collectors.ebpf.child.targets import OTHER
from oomcast_collectors.ebpf.description import Decoder, Table
from oomcast_collectors.ebpf.wire import Row

_MOST_KEYS = 100
_LONGEST_KEY = 200


class GenericPart:
    """What a table counted for a process stays when the process goes, under its name."""

    def __init__(self, program: Program, tools: Tools) -> None:
        self._program = program
        self._tools = tools
        self._kept: Counter[tuple[str, str]] = Counter()
        self._keys: dict[str, set[str]] = {name: set() for name in program.description.tables}
        for group in {probe.group for probe in program.description.uprobes}:
            tools.attacher.switch(program, group, on=True)

    def joined(self, process: Process) -> None:
        return

    def left(self, process: Process) -> None:
        for name, table in self._program.description.tables.items():
            fields = [field for field, how in table.key.items() if how == "process"]
            if not fields:
                continue
            # The pid may soon be another process'.
            gone = [(k, v) for k, v in self._program.rows(table.table) if process.pid in _values(k, fields)]
            for key, value in gone:
                if table.kind == "counter":
                    self._kept[name, self._bounded(name, self._text(key, table, process))] += value
                del self._program.table(table.table)[key]

    def tick(self, now: float) -> None:
        return

    def rows(self) -> Iterator[Row]:
        for name, table in self._program.description.tables.items():
            metric = metrics.COUNT if table.kind == "counter" else metrics.VALUE
            sums = Counter({text: value for (kept, text), value in self._kept.items() if kept == name})
            for key, value in self._program.rows(table.table):
                sums[self._bounded(name, self._text(key, table))] += value
            for text, value in sums.items():
                yield Row(metric.name, (self._program.name, name, text), value)

    def close(self) -> None:
        return

    def _bounded(self, table: str, text: str) -> str:
        """The key of a series, `other` for those that came when a table had had enough of them."""
        keys = self._keys[table]
        if text not in keys and len(keys) >= _MOST_KEYS:
            return OTHER
        keys.add(text)
        return text

    def _text(self, key: Any, table: Table, process: Process | None = None) -> str:
        """The key as a label. process: the one that its pid is of, where that is gone."""
        if len(table.key) == 1:
            ((field, how),) = table.key.items()
            return self._decoded(_value(key, field), how, process)[:_LONGEST_KEY]
        parts = [f"{field}={self._decoded(_value(key, field), how, process)}" for field, how in table.key.items()]
        return ",".join(parts)[:_LONGEST_KEY]

    def _decoded(self, value: Any, how: Decoder, process: Process | None) -> str:
        if how == "text":
            return bytes(value).split(b"\0")[0].decode("utf-8", "backslashreplace")
        if how == "hex":
            return f"{value:#x}"
        if how == "signal":
            return signal.Signals(value).name if value in set(signal.Signals) else str(value)
        if how == "process":
            found = process if process and process.pid == value else self._tools.targets.get(value)
            return found.name if found else OTHER
        return str(value)


def check_tables(program: Program) -> None:
    """Raises EbpfError where the description's tables are not in the program, or keys are not as it says."""
    for table in program.description.tables.values():
        try:
            kind = program.table(table.table).Key
        except KeyError as error:
            raise EbpfError(f"there is no table {table.table} in the program") from error
        fields = {name: type_ for name, type_, *_ in getattr(kind, "_fields_", ())}
        for field, how in table.key.items():
            if fields and field not in fields:
                raise EbpfError(f"the keys of the table {table.table} have no field {field}")
            if issubclass(fields.get(field, kind), ctypes.Array) != (how == "text"):
                raise EbpfError(f"the field {field} of the table {table.table} is not to be read as {how}")


def _value(key: Any, field: str) -> Any:
    """A field of a key, or the key itself where it is a number."""
    return getattr(key, field, None) if hasattr(key, field) else getattr(key, "value", key)


def _values(key: Any, fields: list[str]) -> list[Any]:
    return [_value(key, field) for field in fields]
