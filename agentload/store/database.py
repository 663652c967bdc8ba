"""Open the DuckDB file as briefly as possible.

A writing process locks every other process out of the file, and one open reader
locks out the writer. So the file is never kept open: a writer opens it for one
transaction, a reader for its queries, and both wait for their turn. These calls
block; run them in a thread when there is an event loop.

Databases outlive the schema. `schema.sql` and `views.sql` describe the newest one,
and a file is compared with it: a writer adds what is missing in one transaction, a
reader sees temporary views instead. Missing values are NULL or the column's default.
The version number changes only when an older program could not understand the file.
"""

import os
import random
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import duckdb

from agentload.errors import StoreError
from agentload.model.record import Record
from agentload.store.attachment import attach
from agentload.store.ownership import refuse_foreign

VERSION: Final = 3
"""Version of the schema, raised when a column changes its meaning.

Older programs then refuse the file; a new column needs no new version.
"""
OLDEST: Final = 2

WRITER_PATIENCE_S: Final = 600.0
READER_PATIENCE_S: Final = 60.0  # writers take seconds, except for the first load of a long run

_UPGRADE: Final = "it was written by a newer agentload: install that version"


_STOPPED: Final = "Query interrupted"
"""What DuckDB says instead of the Ctrl-C that came during a query."""
_OF_THE_FILE: Final = (
    duckdb.IOException,
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.OutOfMemoryException,
    duckdb.SerializationException,
)


class BusyError(StoreError):
    """Report a database that is open elsewhere."""


class AbsentError(StoreError):
    """Report a missing database: no file, or one without tables, which a kill may leave."""


@contextmanager
def reading(
    path: Path, *, patience_s: float = READER_PATIENCE_S
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database for queries after any writer has finished, and close it afterwards.

    Raises `AbsentError` if there is none, `BusyError` if a writer keeps it longer
    than *patience_s*, `StoreError` if the file cannot be read.
    """
    if not path.is_file():
        kind = StoreError if path.exists() else AbsentError
        raise kind(f"{path}: no such database", hint=_databases_beside(path))
    with _opened(path, patience_s=patience_s, read_only=True) as connection, _translated(path):
        found = _written(connection)
        if found is None and _is_empty(connection):
            raise AbsentError(
                f"{path}: the database is empty",
                hint="load a journal into it: agentload runs load RUN",
            )
        _check_version(found, path)
        if not _is_newest(found):
            _supply(connection)
        yield connection


def _databases_beside(path: Path) -> str:
    """Return a hint that names the databases of the same folder."""
    files = (each for each in path.parent.glob("*.duckdb") if not _is_no_database(each))
    there = sorted(map(str, files))
    if there:
        return f"databases here: {', '.join(there[:8])}"
    return "make one: agentload decide demo-chat --profile llama-3.1-8b-h100 --db FILE"


@contextmanager
def writing(
    path: Path, *, patience_s: float = WRITER_PATIENCE_S
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database for changes after all others have closed it; create it if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for file in (path, path.with_name(f"{path.name}.wal")):  # DuckDB writes into it, too
        refuse_foreign(file)
    if not path.exists():
        _appear(path)
    with _opened(path, patience_s=patience_s, read_only=False) as connection, _translated(path):
        found = _written(connection)
        if found is None and _is_empty(connection):
            _create(connection)
            found = _written(connection)
        version = _check_version(found, path)
        if not _is_newest(found):
            _bring_up_to_date(connection, path, version)
        yield connection


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit everything done inside, or nothing."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        # On a full disk the connection is already dead; the first error is the one to report.
        with suppress(duckdb.Error):
            connection.rollback()
        raise


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turn errors of disk, memory or file into `StoreError`; a wrong query stays our bug.

    Ctrl-C stays Ctrl-C.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) == _STOPPED:
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        # DuckDB raises its base class for a wrong checksum, and an
        # error of the transaction for a disk that fills at its end.
        if type(error) is duckdb.Error or isinstance(error, _OF_THE_FILE) or _is_full(error):
            raise refusal(path, error) from error
        raise


def refusal(path: Path, error: duckdb.Error | OSError) -> StoreError:
    """Translate an error of DuckDB or the disk into a `StoreError` that says what to do."""
    reason = str(error).partition("\n")[0]
    again = f"the journals hold every row: agentload runs load RUN --db {path}"
    if _is_full(error):
        return StoreError(
            f"{path}: {reason}", hint=f"free some disk space; nothing is lost, {again}"
        )
    if "Permission denied" in reason or "Read-only" in reason:
        return StoreError(
            f"{path}: {reason}",
            hint="change its permissions, or copy it and its journals to where you may write",
        )
    if _is_no_database(path):
        return StoreError(f"{path}: not a database", hint=_databases_beside(path))
    return StoreError(
        f"{path}: {reason}",
        hint="check that it is a DuckDB file and not of a newer DuckDB than the installed one; "
        f"{again}",
    )


def _is_no_database(path: Path) -> bool:
    """Tell whether a file lacks the mark that DuckDB writes behind its first eight bytes."""
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] != b"DUCK"
    except OSError:
        return False


def _is_full(error: duckdb.Error | OSError) -> bool:
    return "No space left" in str(error) or "quota" in str(error).lower()


@contextmanager
def _opened(
    path: Path, *, patience_s: float, read_only: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    started_s = time.monotonic()
    wait_s = 0.02
    with ExitStack() as stack:
        while True:
            try:
                connection = stack.enter_context(attach(path, read_only=read_only))
                break
            except duckdb.Error as error:
                if not _is_busy(error):
                    raise refusal(path, error) from error
                if time.monotonic() - started_s > patience_s:
                    raise _gave_up(path, error, patience_s, read_only=read_only) from error
            # Jitter keeps writers that started together from colliding again and again.
            time.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, 1.0)
        yield connection


def _appear(path: Path) -> None:
    """Create a database under another name and link it to *path*, complete from the start.

    Even if this process is killed, nobody sees a database without its tables.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(_blank())
            file.flush()
            os.fsync(file.fileno())
        with suppress(
            OSError
            # another process was faster, and its file is as good; or this
            # file system has no links: `writing` creates the file itself
        ):
            os.link(beside, path)
    except (duckdb.Error, OSError) as error:
        raise refusal(path, error) from error
    finally:
        with suppress(OSError):  # in a read-only folder no file was made
            beside.unlink(missing_ok=True)


@cache
def _blank() -> bytes:
    """Return the bytes of a database without rows.

    They are cached: creating the tables takes four times as long as writing the file.
    """
    with TemporaryDirectory(prefix="agentload-") as folder:
        file = Path(folder) / "blank.duckdb"
        with attach(file, read_only=False) as connection:
            _create(connection)
        return file.read_bytes()


def _is_busy(error: duckdb.Error) -> bool:
    text = str(error)
    return "Could not set lock" in text or "already attached" in text


def _gave_up(path: Path, error: duckdb.Error, patience_s: float, *, read_only: bool) -> BusyError:
    holder = re.search(r"PID (\d+)", str(error))
    who = f"process {holder[1]}" if holder else "another connection of this process"
    if read_only:
        return BusyError(
            f"{path}: {who} has been writing it for {patience_s:.0f} s",
            hint="wait until it has finished, then try again",
        )
    return BusyError(
        f"{path}: {who} has it open",
        hint=f"close it there; the journals hold every row: agentload runs load RUN --db {path}",
    )


def _is_empty(connection: duckdb.DuckDBPyConnection) -> bool:
    return not _schema(connection).tables


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    with transaction(connection):
        connection.execute(_text("schema.sql") + _text("views.sql"))
        connection.execute("INSERT INTO schema_version VALUES (?, ?)", [VERSION, _digest()])


def _text(name: str) -> str:
    return files("agentload.store").joinpath(name).read_text(encoding="utf-8")


@cache
def _digest() -> str:
    """Return a hash of the text of this version's tables and views."""
    return blake2b((_text("schema.sql") + _text("views.sql")).encode(), digest_size=16).hexdigest()


_Written: TypeAlias = list[tuple[Any, ...]] | None


def _written(connection: duckdb.DuckDBPyConnection) -> _Written:
    """Return the rows of a file's `schema_version`; None if there is no such table.

    A row holds the version and, in newer files, the digest of tables and views.
    """
    with suppress(duckdb.CatalogException):
        return connection.execute("FROM schema_version").fetchall()
    return None


def _is_newest(written: _Written) -> bool:
    """Return whether a file's digest is this version's; then no table needs comparing."""
    return written is not None and any(row[1:] == (_digest(),) for row in written)


def _check_version(written: _Written, path: Path) -> int:
    if written is None or not all(isinstance(row[0], int) for row in written):
        raise StoreError(
            f"{path}: a DuckDB file, but not written by agentload", hint="use another path"
        )
    found = max((row[0] for row in written), default=None)
    if found is None or found < OLDEST:
        again = f"agentload runs load {path.with_suffix('.journal')} --db NEW"
        raise StoreError(
            f"{path}: database version {found}, this agentload reads version {OLDEST} and later",
            hint="read it with the agentload that wrote it, or load its journals into a new "
            f"one: {again}",
        )
    if found > VERSION:
        raise StoreError(
            f"{path}: database version {found}, this agentload reads up to version {VERSION}",
            hint=_UPGRADE,
        )
    return int(found)


class _Column(Record):
    name: str
    type: str
    is_required: bool
    default: str | None


class _Schema(Record):
    """Tables and views by name, as DuckDB prints them."""

    tables: Mapping[str, str]
    views: Mapping[str, str]


_TABLES: Final = """
SELECT table_name, sql FROM duckdb_tables() WHERE database_name = current_database()
"""
_VIEWS: Final = """
SELECT view_name, sql FROM duckdb_views() WHERE database_name = current_database() AND NOT internal
"""


@cache
def _newest() -> tuple[_Schema, Mapping[str, tuple[_Column, ...]]]:
    """Return this version's schema and the columns of its tables."""
    with duckdb.connect(config={"threads": 1}) as connection:
        _create(connection)
        schema = _schema(connection)
        return schema, {table: _columns(connection, table) for table in schema.tables}


def _schema(connection: duckdb.DuckDBPyConnection) -> _Schema:
    return _Schema(
        tables=dict(connection.execute(_TABLES).fetchall()),
        views=dict(connection.execute(_VIEWS).fetchall()),
    )


def _has_views(found: _Schema) -> bool:
    return found.views.items() >= _newest()[0].views.items()


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> tuple[_Column, ...]:
    rows = connection.execute(f"PRAGMA table_info('{table}')").fetchall()
    return tuple(
        _Column(name=name, type=type_, is_required=required, default=default)
        for _, name, type_, required, default, _ in rows
    )


def _differences(
    connection: duckdb.DuckDBPyConnection, found: _Schema
) -> Iterator[tuple[str, tuple[_Column, ...], tuple[_Column, ...]]]:
    """Yield each table that differs from this version's, with its missing and its extra columns."""
    schema, columns = _newest()
    for table, newest in columns.items():
        if found.tables.get(table) == schema.tables[table]:
            continue
        own = _columns(connection, table) if table in found.tables else ()
        names = {column.name for column in own}
        known = {column.name for column in newest}
        yield (
            table,
            tuple(each for each in newest if each.name not in names),
            tuple(each for each in own if each.name not in known),
        )


def _supply(connection: duckdb.DuckDBPyConnection) -> None:
    """Give a reader the newest tables and views as temporary views, whatever the file has."""
    found = _schema(connection)
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    for table, missing, _ in _differences(connection, found):
        values = ", ".join(
            f'({column.default or "NULL"})::{column.type} AS "{column.name}"' for column in missing
        )
        if table not in found.tables:
            connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {values} WHERE false")
        elif missing:
            source = f"{name}.main.{table}"
            # S608: the names are our own
            view = f"SELECT *, {values} FROM {source}"  # noqa: S608
            connection.execute(f"CREATE TEMP VIEW {table} AS {view}")
    if not _has_views(found):
        connection.execute(_text("views.sql").replace("CREATE ", "CREATE TEMP "))


def _bring_up_to_date(connection: duckdb.DuckDBPyConnection, path: Path, version: int) -> None:
    """Add the missing tables, columns and views to a file, all or none.

    Raises `StoreError` if a table requires a column that this version does not know.
    """
    found = _schema(connection)
    differing = list(_differences(connection, found))
    for table, _, unknown in differing:
        required = [
            column.name for column in unknown if column.is_required and column.default is None
        ]
        if required:
            raise StoreError(
                f"{path}: {table} needs {', '.join(required)}, which this agentload does not know",
                hint=_UPGRADE,
            )
    if version == VERSION and not any(missing for _, missing, _ in differing) and _has_views(found):
        return  # a newer program's file, with more than we know
    with transaction(connection):
        connection.execute(
            _text("schema.sql").replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ")
        )
        for table, missing, _ in differing:
            for column in missing if table in found.tables else ():
                default = "" if column.default is None else f" DEFAULT {column.default}"
                connection.execute(
                    f'ALTER TABLE {table} ADD COLUMN "{column.name}" {column.type}{default}'
                )
                if column.is_required:
                    connection.execute(
                        f'ALTER TABLE {table} ALTER COLUMN "{column.name}" SET NOT NULL'
                    )
        connection.execute(_text("views.sql").replace("CREATE ", "CREATE OR REPLACE "))
        connection.execute(
            "UPDATE schema_version SET version = ?, digest = ?", [VERSION, _digest()]
        )
