"""Encode rows as the framed, checksummed bytes of a journal; reading resumes after damage.

A file is a magic line, then frames of `length u32 | crc32 u32 | kind u8 | payload`, all
little-endian; the checksum covers kind and payload. A frame of zeros is never valid, so
reserved space after the last frame reads as the end. The header names the fields of
every kind once, so a record is a bare array. Journals outlive versions: a field that
the file lacks takes its default, one that the program no longer knows is dropped.

While a file is being written, a reader may see the end of a record, and records
after it, before the record's first page. Writes are in order, so bytes that
seemed damaged are read a second time; only bytes that stay wrong are damage.
"""

import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, BinaryIO, Final, Literal, NamedTuple
from zlib import crc32

import msgspec

from agentload import documents
from agentload.errors import StoreError
from agentload.model.record import Record
from agentload.model.rows import Row
from agentload.model.stamps import Stamps
from agentload.store.tables import CALL, TABLES

MAGIC: Final = b"agentload-journal/1\n"
HEAD: Final = struct.Struct("<IIB")
MAX_PAYLOAD: Final = 16 * 1024 * 1024  # bounds the search for the next valid frame after damage
BLOCK: Final = HEAD.size + MAX_PAYLOAD  # the rest of one block plus one more hold any frame
NEWS: Final = 256 * 1024  # chunk of a reader with *followed*: some seconds of a busy run

KIND_CRC: Final = tuple(crc32(bytes((kind,))) for kind in range(256))


class Frame(NamedTuple):
    """One record and its offset (a tuple: a load makes millions)."""

    offset: int
    end: int
    kind: int
    payload: memoryview


class Damage(Record):
    """Bytes without a valid record: damage with valid records after it, or a torn tail."""

    kind: Literal["damaged", "torn"]
    offset: int
    length: int


def frame(kind: int, payload: bytes) -> bytes:
    """Return the bytes of one record."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a record of {len(payload):,} bytes is longer than {MAX_PAYLOAD:,}")
    checksum = crc32(payload, KIND_CRC[kind])
    return HEAD.pack(len(payload), checksum, kind) + payload


def frames(source: BinaryIO, *, offset: int, followed: bool = False) -> Iterator[Frame | Damage]:
    """Yield every valid record from *offset* on, and the faults between and after them.

    *source* must be unbuffered. *followed* stops at reserved space without
    reading it, for readers that come back every few seconds.
    """
    source.seek(offset)
    block = NEWS if followed else BLOCK
    data = b""
    at = 0
    while True:
        for each in _run(data, at, offset):
            yield each
            at = each.end - offset
        if followed and data[at : at + HEAD.size] == bytes(HEAD.size):
            return
        # A frame may be cut by the block boundary; what another
        # block does not complete is damage, searched to the end.
        more = source.read(max(block, len(data) - at) if len(data) - at < BLOCK else -1)
        if more:
            data = data[at:] + more
            offset = offset + at
            at = 0
            continue
        length = len(data.rstrip(b"\0")) - at
        if length <= 0:
            return
        following = _next_whole(data, at + 1)
        if following is None:
            yield Damage(kind="torn", offset=offset + at, length=length)
            return
        source.seek(offset + at)
        if source.read(following - at) != data[at:following]:
            source.seek(offset + at)
            data = b""
            offset = offset + at
            at = 0
            continue
        source.seek(offset + len(data))
        yield Damage(kind="damaged", offset=offset + at, length=following - at)
        at = following


def _run(data: bytes, at: int, offset: int) -> Iterator[Frame]:
    """Yield consecutive valid records from *at* on; a load spends its time in this loop."""
    view = memoryview(data)
    size = len(data)
    unpack = HEAD.unpack_from
    while at + HEAD.size <= size:
        length, checksum, kind = unpack(data, at)
        start = at + HEAD.size
        end = at + HEAD.size + length
        if length > MAX_PAYLOAD or end > size:
            return
        payload = view[start:end]
        if crc32(payload, KIND_CRC[kind]) != checksum:
            return
        yield Frame(offset + at, offset + end, kind, payload)
        at = end


def _next_whole(data: bytes, at: int) -> int | None:
    end = len(data.rstrip(b"\0"))
    for place in range(at, end):
        found = next(_run(data, place, 0), None)
        if found is not None:
            return place
    return None


KINDS: Final[dict[int, type[Row]]] = {number: table.row for number, table in TABLES.items()}
HEADER: Final = 0

NAMES: Final[dict[int, tuple[str, ...]]] = {
    kind: row.__struct_fields__ for kind, row in KINDS.items()
}
DEFAULTS: Final[dict[int, dict[str, object]]] = {
    kind: {
        each.name: each.default
        for each in msgspec.structs.fields(row)
        if each.default is not msgspec.NODEFAULT
    }
    for kind, row in KINDS.items()
}
_KNOWN: Final = {kind: {*NAMES[kind], *DEFAULTS[kind]} for kind in KINDS}
_VALUES: Final = {row: (kind, attrgetter(*NAMES[kind])) for kind, row in KINDS.items()}
_WHOLE: Final = "agentload runs load RUN reads only complete journals"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Layout = Mapping[int, Sequence[str]]
"""The field names of every kind in one file, in record order."""


def header() -> bytes:
    """Return the header record of a journal of this version."""
    # Stamps are arrays of native integers, so the byte order is part of the file.
    layout = {"byteorder": sys.byteorder, "fields": NAMES}
    return MAGIC + frame(HEADER, _encode(layout))


def record(row: Row) -> bytes:
    """Return the framed bytes of one row; equal rows give equal bytes."""
    kind, values = _VALUES[type(row)]
    return frame(kind, _encode(values(row)))


def layout(head: Frame, *, where: str) -> Layout:
    """Parse a header record; raise `StoreError` if this program cannot read its rows."""
    if head.kind != HEADER:
        raise StoreError(f"{where}: the journal has no header", hint=_WHOLE)
    found = _decode(head.payload)
    if found["byteorder"] != sys.byteorder:
        raise StoreError(
            f"{where}: written on a {found['byteorder']}-endian machine",
            hint="load it on the machine that wrote it",
        )
    for kind, row in KINDS.items():
        names = found["fields"].get(kind, ())
        missing = set(NAMES[kind]) - set(names) - set(DEFAULTS[kind])
        if names and missing:
            raise StoreError(
                f"{where}: its {row.__name__} records lack {', '.join(sorted(missing))}: "
                "written by another version",
                hint="load it with the version of agentload that wrote it",
            )
    fields_of: Layout = found["fields"]
    return fields_of


def values(payload: memoryview) -> list[Any]:
    """Decode a record to its values, in the order of the file's layout."""
    try:
        found = _decode(payload)
    except documents.UNREADABLE as error:
        raise StoreError(f"a record that nobody can read: {error}", hint=_WHOLE) from error
    if not isinstance(found, list):
        raise StoreError("a record that is no list of values", hint=_WHOLE)
    return found


def numbers(kinds: tuple[type[Row], ...]) -> frozenset[int]:
    """Return the numbers that mark records of these kinds of rows."""
    return frozenset(number for number, row in KINDS.items() if row in kinds)


def row(kind: int, payload: memoryview, names: Layout) -> Row | None:
    """Decode a record to its row; None for a kind that this version does not know."""
    if kind not in KINDS:
        return None
    held = values(payload)
    try:
        found = dict(zip(names[kind], held, strict=True))
        if not found.keys() <= _KNOWN[kind]:
            found = {name: value for name, value in found.items() if name in _KNOWN[kind]}
        if kind == CALL and found.get("chunks") is not None:
            found["chunks"] = Stamps(**found["chunks"])
        return KINDS[kind](**found)
    except (TypeError, ValueError, KeyError) as error:
        raise StoreError(
            f"a record of another form than its journal says: {error}", hint=_WHOLE
        ) from error
