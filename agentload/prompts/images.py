"""Draw PNG images with known content: coloured digits on a pale background."""

import base64
import hashlib
import math
import struct
import zlib
from typing import Final

from agentload.model.trace import Key

DIGITS: Final = 4
_PATCH: Final = 28  # side of an image token's patch in pixels, as in model.trace.image_tokens

# Seven rows of five dots a digit, the font of character displays.
_FONT: Final = (
    ("01110", "10001", "10011", "10101", "11001", "10001", "01110"),
    ("00100", "01100", "00100", "00100", "00100", "00100", "01110"),
    ("01110", "10001", "00001", "00010", "00100", "01000", "11111"),
    ("11111", "00010", "00100", "00010", "00001", "10001", "01110"),
    ("00010", "00110", "01010", "10010", "11111", "00010", "00010"),
    ("11111", "10000", "11110", "00001", "00001", "10001", "01110"),
    ("00110", "01000", "10000", "11110", "10001", "10001", "01110"),
    ("11111", "00001", "00010", "00100", "01000", "01000", "01000"),
    ("01110", "10001", "10001", "01110", "10001", "10001", "01110"),
    ("01110", "10001", "10001", "01111", "00001", "00010", "01100"),
)
_ROWS: Final = 7
_COLUMNS: Final = DIGITS * 6 + 1  # a dot of space before each digit and after the last
_INKS: Final = ((32, 32, 32), (160, 24, 24), (24, 96, 32), (24, 48, 160))


def digits(key: Key) -> str:
    """Return the number shown in the image of this key.

    No seed enters it, so a trace can hold the check of the answer.
    """
    return "".join(str(byte % 10) for byte in _stream(key)[:DIGITS])


def image_size(patches: float, *, aspect: float = 1.0) -> tuple[int, int]:
    """Return a width and height in pixels: whole patches, about *patches* in all.

    *aspect* is width over height.
    """
    columns = max(1, round(math.sqrt(patches * aspect)))
    rows = max(1, round(patches / columns))
    return columns * _PATCH, rows * _PATCH


def data_url(seed: int, key: Key, size: tuple[int, int], *, salt: str = "") -> str:
    """Return the image of this key as a PNG data URL; a salt changes only its background."""
    encoded = base64.b64encode(png(seed, key, size, salt=salt))
    return f"data:image/png;base64,{encoded.decode('ascii')}"


def png(seed: int, key: Key, size: tuple[int, int], *, salt: str = "") -> bytes:
    """Draw a row of digits, as large as fits, in the middle of a pale background."""
    width, height = size
    dot = max(1, min(width // _COLUMNS, height // (_ROWS + 2)))
    left = (width - dot * _COLUMNS) // 2
    top = (height - dot * _ROWS) // 2
    rows = [_row("0" * width)] * height
    if left >= 0 and top >= 0:  # otherwise no room for digits: an empty background
        glyphs = [_FONT[int(digit)] for digit in digits(key)]
        start = top
        for of_glyphs in zip(*glyphs, strict=True):
            dots = f"0{'0'.join(of_glyphs)}0"
            pixels = "0" * left + "".join(lit * dot for lit in dots)
            rows[start : start + dot] = [_row(pixels.ljust(width, "0"))] * dot
            start += dot
    ink = bytes(_INKS[_stream(key)[DIGITS] % len(_INKS)])
    shades = hashlib.shake_256(f"{seed}\0g{key}\0{salt}".encode()).digest(3)
    # Pale enough for every ink.
    ground = bytes(208 + shade % 48 for shade in shades)
    return _file(size, palette=ground + ink, rows=b"".join(rows))


def _stream(key: Key) -> bytes:
    return hashlib.shake_256(f"i{key}".encode()).digest(DIGITS + 1)


def _row(bits: str) -> bytes:
    """Pack a row: one bit a pixel, padded to whole bytes, after its filter byte (none)."""
    size = -(-len(bits) // 8)
    padded = bits.ljust(size * 8, "0")
    return b"\0" + int(padded, 2).to_bytes(size)


def _file(size: tuple[int, int], *, palette: bytes, rows: bytes) -> bytes:
    """Write a PNG file: one bit a pixel, indexed colour, no interlace."""
    header = struct.pack(">IIBBBBB", *size, 1, 3, 0, 0, 0)
    parts = (
        _part(b"IHDR", header),
        _part(b"PLTE", palette),
        _part(b"IDAT", _stored(rows)),
        _part(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _part(kind: bytes, body: bytes) -> bytes:
    length = struct.pack(">I", len(body))
    checksum = struct.pack(">I", zlib.crc32(kind + body))
    return length + kind + body + checksum


def _stored(rows: bytes) -> bytes:
    """Write a zlib stream of stored blocks (RFC 1950, RFC 1951 section 3.2.4).

    Builds of zlib compress to different bytes, and equal keys must give equal bytes everywhere.
    """
    blocks = [rows[at : at + 0xFFFF] for at in range(0, len(rows), 0xFFFF)] or [b""]
    framed = []
    for number, block in enumerate(blocks, start=1):
        is_last = number == len(blocks)
        framed.append(struct.pack("<BHH", is_last, len(block), len(block) ^ 0xFFFF) + block)
    checksum = struct.pack(">I", zlib.adler32(rows))
    return b"\x78\x01" + b"".join(framed) + checksum
