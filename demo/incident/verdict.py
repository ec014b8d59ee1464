"""Whether the crash was reached, and whether oomcast saw it coming."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from incident.memory import GB
from incident.texts import gb, percent
from incident.view import View

LEAST_LEAD = 10.0
"""Seconds before the crash at which it has to be foreseen."""

FORESEEN = 60.0
"""Seconds to exhaustion from which on that counts."""

FACTOR = 2.0
"""That LEAST_LEAD before the crash the forecast may be off by: the memory does not rise evenly."""

NORMAL, CRASH = (18.2 * GB, 0.924), (79.6 * GB, 0.031)
"""Bytes used, and the ratio of hits."""

_BYTES = (0.3 * GB, 0.2 * GB)
_HITS = 0.015


class Verdict(NamedTuple):
    """calm, last: at the end of the first stage, and before the engine was gone. views: all looks. sent, out_of_memory:
    when the long prompts came, and when an allocation failed, monotonic seconds; None: it never did."""

    calm: View
    last: View
    views: Sequence[View]
    sent: float
    out_of_memory: float | None

    @property
    def foreseen(self) -> View | None:
        """The first look at which the exhaustion was near."""
        return next((one for one in self.views if one.at > self.sent and _near(one.exhausted_in)), None)

    @property
    def missing(self) -> list[str]:
        """What did not come out as it should; nothing if all is well."""
        calm, last = self.calm, self.last
        checks = {
            f"normal: GPU memory is {gb(calm.used)}, not {gb(NORMAL[0])}": _close(calm.used, NORMAL[0], _BYTES[0]),
            f"normal: {percent(calm.hits)} cache hits, not {percent(NORMAL[1])}": _close(calm.hits, NORMAL[1], _HITS),
            "normal: exhaustion was forecast": not _near(calm.exhausted_in),
            "the crash was not reached": self.out_of_memory is not None,
            f"crash: GPU memory is {gb(last.used)}, not {gb(CRASH[0])}": _close(last.used, CRASH[0], _BYTES[1]),
            f"crash: {percent(last.hits)} cache hits, not {percent(CRASH[1])}": _close(last.hits, CRASH[1], _HITS),
            "the daemon did not see the engine go": self.views[-1].value("engine_up") == 0,
        }
        return [reason for reason, fine in checks.items() if not fine] + list(self._forecast())

    def lines(self) -> Iterator[str]:
        """What came of it, for people."""
        out, foreseen, missing = self.out_of_memory, self.foreseen, self.missing
        if out is not None and foreseen is not None and foreseen.exhausted_in is not None:
            yield (
                f"4  FORESEEN  {out - foreseen.at:.0f} s before the crash oomcast said that memory lasts"
                f" {foreseen.exhausted_in:.0f} s;"
            )
            before = self._before(out)
            if before is not None and before.exhausted_in is not None:
                said = f"{before.exhausted_in:.0f} s"
                yield f"   {out - before.at:.0f} s before it, {said}; a factor of {FACTOR:g} either way would pass."
        yield from (f"   FAILED: {reason}" for reason in missing)

    def _forecast(self) -> Iterator[str]:
        out, foreseen = self.out_of_memory, self.foreseen
        if out is None:
            return
        if foreseen is None or out - foreseen.at < LEAST_LEAD:
            yield f"the crash was not forecast {LEAST_LEAD:.0f} s before it"
            return
        before = self._before(out)
        said = math.inf if before is None or before.exhausted_in is None else before.exhausted_in
        if before is None or not 1 / FACTOR <= said / (out - before.at) <= FACTOR:
            yield f"{LEAST_LEAD:.0f} s before the crash the forecast was {said:.0f} s"

    def _before(self, out: float) -> View | None:
        """The last look that was LEAST_LEAD before the crash."""
        return next((one for one in reversed(self.views) if one.at <= out - LEAST_LEAD), None)


def _near(seconds: float | None) -> bool:
    return seconds is not None and seconds <= FORESEEN


def _close(value: float | None, wanted: float, tolerance: float) -> bool:
    return value is not None and abs(value - wanted) <= tolerance
