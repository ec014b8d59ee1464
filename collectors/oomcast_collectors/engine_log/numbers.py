"""Numbers as engines print them: "79.11 GiB", "548,864", "0.1514"."""

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"\s*(-?(?:\d[\d,]{0,30})?\.?\d{1,20})\s?(bytes|[KMGT]?i?B)?\s*\Z", re.ASCII)
_BYTES: Mapping[str, int] = {
    **{"B": 1, "bytes": 1},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
}


def parse_number(text: str) -> int | float | None:
    """The number in `text`; with a unit, whole bytes. None for anything else: free text never passes for a number."""
    match = _NUMBER.match(text)
    if match is None or (match[2] and match[2] not in _BYTES):
        return None
    digits = match[1].replace(",", "")
    if match[2]:
        return round(float(digits) * _BYTES[match[2]])
    return float(digits) if "." in digits else int(digits)
