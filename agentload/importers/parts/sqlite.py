"""Read an SQLite database of another program without touching it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from agentload.errors import TraceError
from agentload.importers.parts.files import parsed
from agentload.importers.parts.notes import Notes

_DAMAGED: Final = (sqlite3.DatabaseError, UnicodeDecodeError)  # a damaged schema is reported in bytes that are no text
MAGIC: Final = b"SQLite format 3\0"


def opened(path: Path) -> sqlite3.Connection:
    """Open read-only; a database whose folder cannot be written to is read as it lies there."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            database = sqlite3.connect(f"file:{quote(str(path.resolve()))}?{mode}", uri=True)
            database.text_factory = _text
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            continue
        except _DAMAGED as error:
            raise TraceError(f"{path}: no readable SQLite database: {error}", hint="copy it with `sqlite3 FILE .backup`") from error
        return database
    raise TraceError(f"{path}: the database cannot be opened", hint="copy it with `sqlite3 FILE .backup`, and import the copy")


def has_table(path: Path, name: str) -> bool:
    """Tell whether a file is a database with this table."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
    try:
        with closing(opened(path)) as database:
            return _exists(database, name)
    except (TraceError, *_DAMAGED):
        return False


def rows(database: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """Yield a table's rows by column, whatever columns this version has; none if there is no such table."""
    try:
        if _exists(database, table):
            cursor = database.execute(f"SELECT * FROM {table}")  # noqa: S608  # the names are ours
            names = [column[0] for column in cursor.description]
            yield from (dict(zip(names, row, strict=True)) for row in cursor)
    except _DAMAGED as error:
        raise TraceError(f"the table {table} is damaged: {error}", hint="sqlite3 FILE .recover") from error


def began(database: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return each session of a transcript and when its first event was written, in milliseconds since 1970."""
    try:
        query = "SELECT session_id, min(created_at) FROM transcript_events GROUP BY session_id ORDER BY 2, 1"
        return database.execute(query).fetchall()
    except _DAMAGED as error:
        raise TraceError(f"the database is damaged: {error}", hint="sqlite3 FILE .recover") from error


def events(path: Path, session: str, notes: Notes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, event) of one session's transcript, in order."""
    with closing(opened(path)) as database:
        try:
            found = database.execute("SELECT seq, event_json FROM transcript_events WHERE session_id = ? ORDER BY seq", (session,))
            for seq, text in found:
                event = parsed(text) if isinstance(text, str | bytes) else None
                if isinstance(event, dict):
                    yield f"{path}: event {seq}", event
                else:
                    notes.skip(f"{path}: event {seq}", "no JSON object")
        except _DAMAGED as error:
            notes.skip(str(path), f"the database is damaged ({type(error).__name__})")


def _exists(database: sqlite3.Connection, table: str) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _text(found: bytes) -> str:
    return found.decode("utf-8", "replace")
