"""What is in a picture."""

import struct
import zlib
from collections import Counter
from pathlib import Path


def colors(png: Path) -> tuple[int, int, Counter[tuple[int, int, int]]]:
    """Width, height, and how many pixels have each colour, of a PNG with 8 bits per channel and no interlacing."""
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        chunks[kind] = chunks.get(kind, b"") + data[at + 8 : at + 8 + length]
        at += length + 12
    width, height, depth, color, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, interlaced) == (8, 0)
    size = {2: 3, 6: 4}[color]
    raw = zlib.decompress(chunks[b"IDAT"])
    counts: Counter[tuple[int, int, int]] = Counter()
    above = bytearray(width * size)
    for row in range(height):
        start = row * (width * size + 1)
        above = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + width * size]), above, size)
        counts.update(zip(above[0::size], above[1::size], above[2::size], strict=True))
    return width, height, counts


def unfiltered(kind: int, line: bytearray, above: bytearray, size: int) -> bytearray:
    """A line of a PNG from what its filter has made of it."""
    for index in range(len(line) if kind else 0):
        left = line[index - size] if index >= size else 0
        corner = above[index - size] if index >= size else 0
        up = above[index]
        paeth = min((left, up, corner), key=lambda one: abs(left + up - corner - one))
        line[index] = (line[index] + (0, left, up, (left + up) // 2, paeth)[kind]) & 255
    return line
