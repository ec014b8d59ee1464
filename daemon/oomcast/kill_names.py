"""Names of kills on their way into the books. Whose limit was hit the kernel log alone can tell, so another witness'
name waits for the log's; what both know goes together."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from oomcast.contract import Event

KERNEL_LOG = "kernel_log"

_MOST = 1000


@dataclass(frozen=True, slots=True)
class Name:
    """at: monotonic, when the first of the witnesses told. report: what they know of the one victim."""

    at: float
    witnesses: tuple[str, ...]
    report: Event

    @property
    def settled(self) -> bool:
        """Whether nobody is expected to know more of it."""
        return KERNEL_LOG in self.witnesses or bool(self.report.fields.get("limit_cgroup"))


class Names:
    """Those of one cgroup, the oldest first. Not for several threads at once."""

    def __init__(self) -> None:
        self._names: deque[Name] = deque(maxlen=_MOST)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, witness: str, report: Event, now: float) -> None:
        """A kill that no other witness has named yet."""
        self._names.append(Name(now, (witness,), report))

    def join(self, witness: str, report: Event) -> None:
        """A kill that another witness has named. If that name was booked already, nothing is added to it."""
        for place, name in enumerate(self._names):
            if not name.settled and name.report.fields.get("pid") == report.fields.get("pid"):
                fields = _without_witness(name.report.fields) | _without_witness(report.fields)
                self._names[place] = Name(name.at, (*name.witnesses, witness), replace(report, fields=fields))
                return

    def settled(self) -> bool:
        """Whether one need not wait."""
        return any(name.settled for name in self._names)

    def take(self) -> Name:
        """One that need not wait, else the oldest. Raises IndexError without names."""
        for place, name in enumerate(self._names):
            if name.settled:
                del self._names[place]
                return name
        return self._names.popleft()

    def drop(self, count: int) -> None:
        """The oldest of them."""
        for _ in range(min(count, len(self._names))):
            self._names.popleft()

    def drop_before(self, time: float) -> None:
        while self._names and self._names[0].at < time:
            self._names.popleft()


def _without_witness(fields: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    return {key: value for key, value in fields.items() if key != "witness"}
