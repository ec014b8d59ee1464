"""What settings of the collector are refused."""

from typing import Any

import pytest

from oomcast_collectors.requests import RequestsSettings


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        *(({"socket": value}, "socket") for value in ("relative", "/" + "x" * 107, "/" + "ö" * 54, "/a\0b")),
        *(({"mode": value}, "mode") for value in ("660", 660, "0o660", "0888", "06600", "")),
        *(({"rate": value}, "rate") for value in (0, 1_000_001)),
        *(({"engines": value}, "engines") for value in (0, 65)),
        *(({"window": value}, "window") for value in (59, 86_401)),
        ({"uids": [-1]}, "uids"),
        ({"uids": [(1 << 32) - 1]}, "uids"),  # as which the kernel takes -1
        ({"gids": [-1]}, "gids"),
        ({"group": ""}, "group"),
    ],
)
def test_refused(keys: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=f"1 validation error for RequestsSettings\n{key}"):
        RequestsSettings.model_validate(keys)


def test_taken() -> None:
    longest = "/" + "x" * 106
    taken = RequestsSettings.model_validate({"socket": longest, "mode": "0602", "uids": [], "gids": [0, (1 << 32) - 2]})
    assert (str(taken.socket), taken.mode_bits, taken.uids) == (longest, 0o602, ())
