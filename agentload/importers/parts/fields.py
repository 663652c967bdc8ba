"""Parse the fields of logs: timestamps of all kinds, token counts, and comma-separated tables."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from agentload.documents import LONGEST_LINE
from agentload.errors import TraceError
from agentload.importers.parts.dialogue import CallUsage
from agentload.importers.parts.files import (
    HALF,
    JsonRecord,
    Placed,
    as_object,
    lines,
    object_in,
    what_is_wrong,
)
from agentload.importers.parts.notes import ImportNotes

# Limits, and how many of the unit of larger numbers make a second: ns, µs, ms.
# 5e9 is the year 2128 in s, February 1970 in ms; and so on.
_UNITS: Final = ((5e15, 1e9), (5e12, 1e6), (5e9, 1e3))
T = TypeVar("T")
csv.field_size_limit(LONGEST_LINE)  # 128 kB by default, and a prompt may be longer


def seconds(found: object) -> float | None:
    """Parse ISO 8601 (UTC without a zone), or s, ms, µs or ns since 1970; otherwise None."""
    if isinstance(found, bool) or found is None:
        return None
    if isinstance(found, int | float):
        return _in_seconds(float(found))
    if not isinstance(found, str):
        return None
    text = found.strip()
    try:
        return _in_seconds(float(text))
    except ValueError:
        return iso(text)


def iso(text: str) -> float | None:
    """Parse a date and time, otherwise None."""
    try:
        stamp = datetime.fromisoformat(text)
        if stamp.tzinfo is None:
            stamp = stamp.replace(tzinfo=UTC)
        return stamp.timestamp()
    except (OverflowError, ValueError):
        return None


def stamp(record: JsonRecord) -> float | None:
    """Return the time in a record's field `timestamp`, otherwise None."""
    return seconds(record.get("timestamp"))


def _in_seconds(number: float) -> float | None:
    """Return a time since 1970 in seconds, whose size says what its unit is."""
    if not math.isfinite(number) or number < 0:
        return None
    for limit, unit in _UNITS:
        if number > limit:
            return number / unit
    return number


# ANN401: a field is of any JSON type
def first(found: JsonRecord, *names: str) -> Any:  # noqa: ANN401
    """Return the first of these fields that is present, otherwise None."""
    return first_known(map(found.get, names))


def first_time(found: JsonRecord, *names: str) -> float | None:
    """Return the first of these fields that is a time."""
    return first_known(map(seconds, map(found.get, names)))


def first_known(values: Iterable[T | None]) -> T | None:
    """Return the first value that is not None, otherwise None."""
    return next((value for value in values if value is not None), None)


def agents_usage(found: object) -> CallUsage:
    """Read the token counts of pi and its derivatives, which count cached tokens separately."""
    said = object_in(found)
    prompt = sum(count(said, name) or 0 for name in ("input", "cacheRead", "cacheWrite"))
    return CallUsage(
        prompt=prompt or None, output=count(said, "output") or None, cached=count(said, "cacheRead")
    )


def usage(found: object) -> CallUsage:
    """Return prompt, output, cached and thinking tokens, if known."""
    said = as_object(found)
    inputs = _inner(said, "prompt_tokens_details", "input_tokens_details", "input_token_details")
    outputs = _inner(
        said, "completion_tokens_details", "output_tokens_details", "output_token_details"
    )
    prompt = count(said, "prompt_tokens", "input_tokens")
    cached = count(said, "cache_read_input_tokens", "cached_tokens", "prompt_cache_hit_tokens")
    if "cache_read_input_tokens" in said or "cache_creation_input_tokens" in said:
        # Anthropic counts cached tokens apart from the input, OpenAI as part of it.
        written = count(said, "cache_creation_input_tokens")
        prompt = (prompt or 0) + (cached or 0) + (written or 0)
    return CallUsage(
        prompt=prompt or None,
        output=count(said, "completion_tokens", "output_tokens"),
        cached=count(inputs, "cached_tokens", "cache_read") if cached is None else cached,
        thinking=count(outputs, "reasoning_tokens", "reasoning"),
    )


def count(said: JsonRecord, *names: str) -> int | None:
    """Return the first number of tokens that has one of these names."""
    for name in names:
        found = said.get(name)
        found = whole(found) if isinstance(found, str) else found
        if isinstance(found, int | float) and not isinstance(found, bool) and found >= 0:
            return int(found)
    return None


def whole(text: str) -> int | None:
    """Parse an integer; None if the text is none, or has thousands of digits."""
    try:
        return int(text)
    except ValueError:
        return None


def _inner(said: JsonRecord, *names: str) -> JsonRecord:
    found = (said.get(name) for name in names)
    return next((inner for inner in found if isinstance(inner, dict)), {})


def rows(path: Path, kind: type[T], notes: ImportNotes) -> Placed[T]:
    """Yield (place, row) for each line after the header; no cell holds a newline.

    Column names are matched ignoring case and surrounding blanks. A row that cannot
    be read as *kind* is skipped (`ImportNotes.skip`); an incomplete last line is only counted.
    """
    for place, found, cut in _table(path, notes, lambda cells: _columns(path, cells, kind)):
        try:
            yield place, msgspec.convert(found, kind, strict=False)
        except msgspec.ValidationError as error:
            _refuse(notes, place, what_is_wrong(error), cut=cut)


def every_row(path: Path, notes: ImportNotes) -> Placed[dict[str, str]]:
    """Yield (place, row) with all filled columns by name, as text."""
    return ((place, found) for place, found, _ in _table(path, notes, list))


def _table(
    path: Path, notes: ImportNotes, columns: Callable[[list[str]], list[str]]
) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Yield (place, row by column, whether it may be incomplete)."""
    header: list[str] | None = None
    for place, line in lines(path, notes):
        cells = _cells(line)
        cut = not line.endswith(b"\n")
        if header is None:
            header = columns(cells)
        elif len(cells) == len(header):
            named = zip(header, cells, strict=True)
            yield place, {name: cell for name, cell in named if cell}, cut
        else:
            what = f"{len(cells)} cells, the header has {len(header)}"
            _refuse(notes, place, what, cut=cut)


def _cells(line: bytes) -> list[str]:
    text = line.decode("utf-8-sig", "replace").replace("\r", " ").replace("\n", " ")
    return [cell.strip() for cell in next(csv.reader([text]), [])]


def _refuse(notes: ImportNotes, place: str, what: str, *, cut: bool) -> None:
    if cut:
        notes.meet(place, HALF)
    else:
        notes.skip(place, what)


def _columns(path: Path, cells: list[str], kind: type[object]) -> list[str]:
    fields = msgspec.structs.fields(kind)  # type: ignore[arg-type]  # a Struct
    known = {field.encode_name.lower(): field.encode_name for field in fields}
    header = [known.get(cell.lower(), cell) for cell in cells]
    for field in fields:
        if field.required and field.encode_name not in header:
            raise TraceError(
                f"{path}:1: no column '{field.encode_name}'",
                hint="agentload trace import lists the formats",
            )
    return header
