"""Read the width and height of an image from its first bytes."""

import struct
from typing import Final

_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that begin a frame (ITU T.81, table B.1)."""


def size_of(head: bytes) -> tuple[int, int] | None:
    """Return (width, height) of a PNG, GIF, JPEG or WebP image; None for all else."""
    found = _size(head)
    return found if found is not None and min(found) >= 1 else None


def _size(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        width, height = struct.unpack("<HH", head[6:10])
        return width, height
    if head.startswith(b"\xff\xd8"):
        return _jpeg(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(head)
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        if head[at + 1] in _FRAMES:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(head[at + 2 : at + 4])
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 " if len(head) >= 30:
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if len(head) >= 25:
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(head) >= 30:
            return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
        case _:
            return None
