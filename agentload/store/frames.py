"""The bytes of a journal: framed records with checksums, so that reading can resume after damage.

A file is a magic line, then frames of `length u32 | crc32 u32 | kind u8 | payload`, all little-endian; the checksum covers kind and
payload. A frame of zeros is never valid, so reserved space after the last frame reads as the end.

While a file is being written, a reader may see the end of a record, and records after it, before the record's first page. Writes are in
order, so what seemed damaged is read a second time; only bytes that stay wrong are damage.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Literal, NamedTuple
from zlib import crc32

MAGIC: Final = b"agentload-journal/1\n"
HEAD: Final = struct.Struct("<IIB")
MAX_PAYLOAD: Final = 16 * 1024 * 1024  # bounds the search for the next valid frame after damage
BLOCK: Final = HEAD.size + MAX_PAYLOAD  # the rest of one block plus one more hold any frame
NEWS: Final = 256 * 1024  # a following reader's chunk: some seconds of a busy run

KIND_CRC: Final = tuple(crc32(bytes((kind,))) for kind in range(256))


class Frame(NamedTuple):
    """One record and its offset (a tuple: a load makes millions)."""

    offset: int
    end: int
    kind: int
    payload: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Bytes without a valid record: damage with valid records after it, or a torn tail."""

    kind: Literal["damaged", "torn"]
    offset: int
    length: int


def frame(kind: int, payload: bytes) -> bytes:
    """Return the bytes of one record."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a record of {len(payload):,} bytes is longer than {MAX_PAYLOAD:,}")
    return HEAD.pack(len(payload), crc32(payload, KIND_CRC[kind]), kind) + payload


def frames(source: BinaryIO, *, offset: int, followed: bool = False) -> Iterator[Frame | Fault]:
    """Yield every record from *offset* on, and the faults between and after them; *source* must be unbuffered.

    *followed* stops at reserved space without reading it, for readers that come back every few seconds.
    """
    source.seek(offset)
    block = NEWS if followed else BLOCK
    data, at = b"", 0
    while True:
        for each in _run(data, at, offset):
            yield each
            at = each.end - offset
        if followed and data[at : at + HEAD.size] == bytes(HEAD.size):
            return
        # A frame may be cut by the block boundary; what another block does not complete is damage, searched to the end.
        if more := source.read(max(block, len(data) - at) if len(data) - at < BLOCK else -1):
            data, offset, at = data[at:] + more, offset + at, 0
            continue
        length = len(data.rstrip(b"\0")) - at
        if length <= 0:
            return
        following = _next_whole(data, at + 1)
        if following is None:
            yield Fault(kind="torn", offset=offset + at, length=length)
            return
        source.seek(offset + at)
        if source.read(following - at) != data[at:following]:
            source.seek(offset + at)
            data, offset, at = b"", offset + at, 0
            continue
        source.seek(offset + len(data))
        yield Fault(kind="damaged", offset=offset + at, length=following - at)
        at = following


def _run(data: bytes, at: int, offset: int) -> Iterator[Frame]:
    """Yield consecutive valid records from *at* on; a load spends its time in this loop."""
    view, size, unpack = memoryview(data), len(data), HEAD.unpack_from
    while at + HEAD.size <= size:
        length, checksum, kind = unpack(data, at)
        start, end = at + HEAD.size, at + HEAD.size + length
        if length > MAX_PAYLOAD or end > size:
            return
        payload = view[start:end]
        if crc32(payload, KIND_CRC[kind]) != checksum:
            return
        yield Frame(offset + at, offset + end, kind, payload)
        at = end


def _next_whole(data: bytes, at: int) -> int | None:
    end = len(data.rstrip(b"\0"))
    return next((place for place in range(at, end) if next(_run(data, place, 0), None) is not None), None)
