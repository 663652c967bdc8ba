"""Read comma-separated tables row by row, as records by column name."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from agentload.errors import TraceError
from agentload.importers.parts.files import HALF, lines, what_is_wrong
from agentload.importers.parts.notes import Notes

T = TypeVar("T")


def rows(path: Path, kind: type[T], notes: Notes) -> Iterator[tuple[str, T]]:
    """Yield (place, row) for each line behind the header; columns are matched without regard to case and blanks around them.

    A row that cannot be read as `kind` is skipped (`Notes.skip`); a last line that was cut short is only counted.
    """
    header: list[str] | None = None
    for number, line in lines(path, notes):
        cells = _cells(line)
        if header is None:
            header = _columns(path, cells, kind)
            continue
        place = f"{path}:{number}"
        cut = not line.endswith(b"\n")
        if len(cells) != len(header):
            _refuse(notes, place, f"{len(cells)} cells, the header has {len(header)}", cut=cut)
            continue
        try:
            yield place, msgspec.convert(_present(header, cells), kind, strict=False)
        except msgspec.ValidationError as error:
            _refuse(notes, place, what_is_wrong(error), cut=cut)


def every_row(path: Path, notes: Notes) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, row) with all columns as they are named, as text."""
    header: list[str] | None = None
    for number, line in lines(path, notes):
        cells = _cells(line)
        if header is None:
            header = cells
        elif len(cells) == len(header):
            yield f"{path}:{number}", dict(_present(header, cells))
        else:
            _refuse(notes, f"{path}:{number}", f"{len(cells)} cells, the header has {len(header)}", cut=not line.endswith(b"\n"))


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8-sig", "replace").replace("\r", " ").replace("\n", " ")
    return [cell.strip() for cell in next(csv.reader([text]), [])]


def _refuse(notes: Notes, place: str, what: str, *, cut: bool) -> None:
    if cut:
        notes.meet(place, HALF)
    else:
        notes.skip(place, what)


def _columns(path: Path, cells: list[str], kind: type[object]) -> list[str]:
    known = {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(kind)}  # type: ignore[arg-type]  # a Struct
    header = [known.get(cell.lower(), cell) for cell in cells]
    missing = [field.encode_name for field in msgspec.structs.fields(kind) if field.required and field.encode_name not in header]  # type: ignore[arg-type]  # as above
    if missing:
        raise TraceError(f"{path}:1: no column '{missing[0]}'", hint="agentload trace import FORMAT FILE: is it of this format?")
    return header


def _present(header: list[str], cells: list[str]) -> Mapping[str, str]:
    return {name: cell for name, cell in zip(header, cells, strict=True) if cell}
