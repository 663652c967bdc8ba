"""Parse the fields of logs: timestamps of all kinds, token counts, and comma-separated tables."""

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from agentload.documents import LONGEST_LINE
from agentload.errors import TraceError
from agentload.importers.parts.dialogue import CallUsage
from agentload.importers.parts.files import HALF, lines, object_in, what_is_wrong
from agentload.importers.parts.notes import ImportNotes

# Larger numbers are in that unit: 5e9 is the year 2128 in s, February 1970 in ms; and so on.
_MILLIS: Final = 5e9
_MICROS: Final = 5e12
_NANOS: Final = 5e15
T = TypeVar("T")
csv.field_size_limit(LONGEST_LINE)  # 128 kB by default, and a prompt may be longer


def seconds(found: object) -> float | None:
    """Parse ISO 8601 (UTC without a zone), or s, ms, µs or ns since 1970; otherwise None."""
    if isinstance(found, bool) or found is None:
        return None
    if isinstance(found, int | float):
        return _scaled(float(found))
    if not isinstance(found, str):
        return None
    text = found.strip()
    try:
        return _scaled(float(text))
    except ValueError:
        return iso(text)


def iso(text: str) -> float | None:
    """Parse a date and time, otherwise None."""
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None


def _scaled(number: float) -> float | None:
    if not math.isfinite(number) or number < 0:
        return None
    for limit, unit in ((_NANOS, 1e9), (_MICROS, 1e6), (_MILLIS, 1e3)):
        if number > limit:
            return number / unit
    return number


# ANN401: a field is of any JSON type
def first(found: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401
    """Return the first of these fields that is present, otherwise None."""
    return next((found[name] for name in names if found.get(name) is not None), None)


def first_time(found: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of these fields that is a time."""
    times = (seconds(found.get(name)) for name in names)
    return next((at_s for at_s in times if at_s is not None), None)


def agents_usage(found: object) -> CallUsage:
    """Read the token counts of pi and its derivatives, which count cached tokens separately."""
    said = object_in(found)
    prompt = sum(count(said, name) or 0 for name in ("input", "cacheRead", "cacheWrite"))
    return CallUsage(
        prompt=prompt or None, output=count(said, "output") or None, cached=count(said, "cacheRead")
    )


def usage(found: object) -> CallUsage:
    """Return prompt, output, cached and thinking tokens, if known."""
    said = found if isinstance(found, dict) else {}
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


def count(said: Mapping[str, Any], *names: str) -> int | None:
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


def _inner(said: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found = (said.get(name) for name in names)
    return next((inner for inner in found if isinstance(inner, dict)), {})


def rows(path: Path, kind: type[T], notes: ImportNotes) -> Iterator[tuple[str, T]]:
    """Yield (place, row) for each line after the header; no cell holds a newline.

    Column names are matched ignoring case and surrounding blanks. A row that cannot
    be read as *kind* is skipped (`ImportNotes.skip`); an incomplete last line is only counted.
    """
    for place, found, cut in _table(path, notes, lambda cells: _columns(path, cells, kind)):
        try:
            yield place, msgspec.convert(found, kind, strict=False)
        except msgspec.ValidationError as error:
            _refuse(notes, place, what_is_wrong(error), cut=cut)


def every_row(path: Path, notes: ImportNotes) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, row) with all filled columns by name, as text."""
    return ((place, found) for place, found, _ in _table(path, notes, list))


def _table(
    path: Path, notes: ImportNotes, columns: Callable[[list[str]], list[str]]
) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Yield (place, row by column, whether it may be incomplete)."""
    header: list[str] | None = None
    for number, line in lines(path, notes):
        cells = _cells(line)
        cut = not line.endswith(b"\n")
        if header is None:
            header = columns(cells)
        elif len(cells) == len(header):
            yield (
                f"{path}:{number}",
                {name: cell for name, cell in zip(header, cells, strict=True) if cell},
                cut,
            )
        else:
            _refuse(
                notes,
                f"{path}:{number}",
                f"{len(cells)} cells, the header has {len(header)}",
                cut=cut,
            )


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
    missing = [
        field.encode_name for field in fields if field.required and field.encode_name not in header
    ]
    if missing:
        raise TraceError(
            f"{path}:1: no column '{missing[0]}'", hint="agentload trace import lists the formats"
        )
    return header
