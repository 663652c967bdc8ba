"""Encode rows as records and decode them. A file's header names the fields of every kind once, so a record is a bare array.

Journals outlive versions: a field that the file lacks takes its default, one that the program no longer knows is dropped.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, Final

import msgspec

from agentload import documents
from agentload.errors import StoreError
from agentload.model.rows import Row
from agentload.model.stamps import Stamps
from agentload.store.frames import MAGIC, Frame, frame
from agentload.store.tables import CALL, TABLES

KINDS: Final[dict[int, type[Row]]] = {number: table.row for number, table in TABLES.items()}
HEADER: Final = 0

NAMES: Final[dict[int, tuple[str, ...]]] = {kind: tuple(field.name for field in fields(row)) for kind, row in KINDS.items()}
DEFAULTS: Final[dict[int, dict[str, object]]] = {
    kind: {field.name: field.default for field in fields(row) if field.default is not MISSING} for kind, row in KINDS.items()
}
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
        raise StoreError(f"{where}: written on a {found['byteorder']}-endian machine", hint="load it on the machine that wrote it")
    for kind, row in KINDS.items():
        names = found["fields"].get(kind, ())
        missing = set(NAMES[kind]) - set(names) - set(DEFAULTS[kind])
        if names and missing:
            raise StoreError(
                f"{where}: its {row.__name__} records lack {', '.join(sorted(missing))}: written by another version",
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


def row(kind: int, payload: memoryview, names: Layout) -> Row | None:
    """Decode a record to its row; None for a kind that this version does not know."""
    if kind not in KINDS:
        return None
    known = DEFAULTS[kind].keys() | set(NAMES[kind])
    held = values(payload)
    try:
        found = {name: value for name, value in zip(names[kind], held, strict=True) if name in known}
        if kind == CALL and found.get("chunks") is not None:
            found["chunks"] = Stamps(**found["chunks"])
        return KINDS[kind](**found)
    except (TypeError, ValueError, KeyError) as error:
        raise StoreError(f"a record of another form than its journal says: {error}", hint=_WHOLE) from error
