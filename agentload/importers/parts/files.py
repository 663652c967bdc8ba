"""Read source files: plain, gzip or zstd, JSON lines or an array, complete or cut short."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from agentload import documents
from agentload.errors import TraceError
from agentload.importers.parts.notes import ImportNotes

T = TypeVar("T")
JsonRecord: TypeAlias = dict[str, Any]
"""One JSON object of a source."""
Placed: TypeAlias = Iterator[tuple[str, T]]
"""What was read, each with its file and line."""
HALF: Final = "incomplete last line"
_LONG: Final = 1 << 14
"""Bytes of a first line that is taken for a record although its end is not in sight."""
_MARK: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]|"', re.DOTALL)


def lines(path: Path, notes: ImportNotes) -> Placed[bytes]:
    """Yield (place, line) for each line that is not blank, with its newline if it has one."""
    for number, line in enumerate(documents.lines(_chunks(path, notes), at=str(path)), start=1):
        if not line.isspace():
            yield f"{path}:{number}", line


def records(path: Path, kind: type[T], notes: ImportNotes) -> Placed[T]:
    """Yield (place, record) for each JSON value: lines, array elements, or concatenated values.

    A value that cannot be read as *kind* is skipped (`ImportNotes.skip`);
    a value that the end of the file cuts off is only counted.
    """
    decode = msgspec.json.Decoder(kind, strict=False).decode
    if _is_one_a_line(path):
        yield from _by_line(path, decode, notes)
        return
    number = 0
    for number, text in values(_chunks(path, notes)):
        place = f"{path}: value {number}"
        if text is None:
            notes.meet(place, HALF)
            return
        yield from _decode(decode, text, place, notes)
    if not number and head(path).strip():
        notes.meet(f"{path}:1", "a file without a JSON object")


def _by_line(path: Path, decode: Callable[[bytes], T], notes: ImportNotes) -> Placed[T]:
    for place, line in lines(path, notes):
        if line.endswith(b"\n"):
            yield from _decode(decode, line, place, notes)
            continue
        try:
            yield place, decode(line)
        except documents.UNREADABLE:
            notes.meet(place, HALF)


def _decode(decode: Callable[[bytes], T], text: bytes, place: str, notes: ImportNotes) -> Placed[T]:
    """Yield the record of a text, unless it is to be skipped."""
    try:
        yield place, decode(text)
    except msgspec.ValidationError as error:
        notes.skip(place, what_is_wrong(error))
    except documents.UNREADABLE:
        notes.skip(place, "not JSON")


def what_is_wrong(error: msgspec.ValidationError) -> str:
    """Say where a record violates its format, without quoting its content."""
    what, _, where = str(error).partition(" - at ")
    if "Invalid enum" in what or "Invalid value" in what:
        what = "unknown value"
    what = what.split(", got")[0]
    where = where.strip("`").removeprefix("$").removeprefix(".")
    return f"{where}: {what}" if where else what


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401  # foreign JSON, looked at once
    """Parse JSON text, or return None."""
    try:
        return msgspec.json.decode(text)
    except documents.UNREADABLE:
        return None


def as_object(found: object) -> JsonRecord:
    """Return an object; an empty one for anything else."""
    return found if isinstance(found, dict) else {}


def as_list(found: object) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return found if isinstance(found, list) else []


def as_text(found: object) -> str | None:
    """Return a text; None for anything else."""
    return found if isinstance(found, str) else None


def objects(found: object) -> list[JsonRecord]:
    """Return the objects in a list; none for anything else."""
    return [each for each in as_list(found) if isinstance(each, dict)]


def list_in(found: object) -> list[Any]:
    """Return a list, or the list in a JSON text; an empty one for anything else."""
    return as_list(parse_json(found) if isinstance(found, str) else found)


def object_in(found: object) -> JsonRecord:
    """Return an object, or the object in a JSON text; an empty one for anything else."""
    return as_object(parse_json(found) if isinstance(found, str) else found)


def head(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first uncompressed bytes of a file, as far as they can be read."""
    found = bytearray()
    for chunk in _chunks(path, ImportNotes("lenient")):
        found += chunk
        if len(found) >= size:
            break
    return bytes(found[:size])


def _chunks(path: Path, notes: ImportNotes) -> Iterator[bytes]:
    try:
        for chunk in documents.chunks(path):
            notes.read_bytes += len(chunk)
            yield chunk
    except documents.DAMAGED as error:
        notes.meet(
            str(path), f"the compressed file is damaged or cut short ({type(error).__name__})"
        )
    except OSError as error:
        raise TraceError(
            f"{path}: {error.strerror}", hint="agentload trace import FORMAT PATH..."
        ) from error


def _is_one_a_line(path: Path) -> bool:
    first = head(path).lstrip().partition(b"\n")[0].rstrip()
    if first == b"{" or not first.startswith(b"{"):
        return False
    return first.endswith(b"}") or len(first) > _LONG


def values(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number, text) for each top-level object, or element of a top-level array.

    The text is None for a value that the end of the file cuts off.
    """
    scan = _Scan()
    number = 0
    waiting = list[bytes]()
    size = 0
    for chunk in chain(chunks, (b"",)):
        waiting.append(chunk)
        size += len(chunk)
        if chunk and size < scan.held:  # each look is at twice as many bytes: no quadratic time
            continue
        for text in scan.feed(b"".join(waiting)):
            number += 1
            yield number, text
        waiting, size = [], 0
        if scan.held > documents.LONGEST_LINE:
            raise TraceError(
                f"value {number + 1} is longer than {documents.LONGEST_LINE >> 20} MiB",
                hint="is it a log of many records?",
            )
    if scan.is_open:
        yield number + 1, None


class _Scan:
    """The state of the stream: unconsumed bytes and nesting depth."""

    def __init__(self) -> None:
        self._rest = b""
        self._at = 0  # scanned up to here
        self._start: int | None = None  # start of the current value
        self._depth = 0
        self._floor: int | None = None  # depth of values: 1 inside a top-level array, else 0

    @property
    def held(self) -> int:
        """Number of bytes held of an unfinished value."""
        return len(self._rest)

    @property
    def is_open(self) -> bool:
        """Whether a value has started and not ended."""
        return self._start is not None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add bytes; yield the values they complete."""
        buffer = self._rest + chunk
        for found in iter(lambda: _MARK.search(buffer, self._at), None):
            mark = found.group()
            if mark == b'"':  # a string that continues in the next chunk
                break
            self._at = found.end()
            if mark in b"[{":
                self._open(mark, found.start())
            elif mark in b"]}":
                self._depth -= 1
                if self._start is not None and self._depth == self._floor:
                    yield buffer[self._start : self._at]
                    self._start = None
        kept = self._at if self._start is None else self._start
        self._rest, self._at = buffer[kept:], self._at - kept
        if self._start is not None:
            self._start = 0

    def _open(self, mark: bytes, at: int) -> None:
        if self._floor is None:
            self._floor = 1 if mark == b"[" else 0
        if self._start is None and self._depth == self._floor:
            self._start = at
        self._depth += 1
