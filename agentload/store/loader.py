"""Load journals into a database: each row once, even after a repeated or a killed load.

Each batch is one transaction, which also records how far the journal was read, so
a load continues where the last one stopped. A journal that was moved or rewritten
is read from its start; rows that are already there are recognised by their key.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias
from zlib import crc32

import duckdb
import polars as pl

from agentload.model.record import without_cycle_search
from agentload.model.rows import Row
from agentload.store import codec, columns
from agentload.store.codec import Damage
from agentload.store.database import WRITER_PATIENCE_S, transaction, writing
from agentload.store.journal import Reader, Writer, read
from agentload.store.places import journal_folder
from agentload.store.tables import CALL, TABLES

# One to two seconds a transaction, close to the 122,880 rows of a DuckDB row group,
# which is then written once: a quarter less time than with batches of 64 MB.
BATCH_BYTES: Final = 80 * 1024 * 1024
MARK_BYTES: Final = 4096
FLUSHED: Final = 1000
"""Rows between two flushes of `keep`; readers that follow its journal see them then."""
Rows: TypeAlias = list[list[Any]]
"""Values of rows, each in the order of its journal's layout."""
Batch: TypeAlias = dict[int, Rows]
"""Rows by their kind."""
_SCHEMAS: Final[dict[int, pl.Schema]] = {}
# DuckDB locks out other processes, but not other threads.
_ONE_AT_A_TIME: Final = threading.Lock()


_INSERT_CALLS: Final = """
INSERT INTO calls_row BY NAME
SELECT batch.*, chunk_count, first_chunk_tokens, streamed_tokens, gap_p99_us
FROM batch LEFT JOIN (
    SELECT call_id, len(gap_us) AS chunk_count, coalesce(tokens[1], 1) AS first_chunk_tokens,
        coalesce(list_sum(tokens), len(gap_us)) AS streamed_tokens,
        -- The p99 of fewer than a hundred gaps is the longest,
        -- and finding that takes a fourth of the time.
        CASE
            WHEN len(gap_us) <= 100 THEN greatest(list_max(gap_us), list_max(late_us))
            ELSE list_aggregate(list_concat(gap_us, late_us), 'quantile_disc', 0.99)
        END AS gap_p99_us
    FROM chunks_batch
) USING (call_id)
"""


@dataclass(slots=True, kw_only=True)
class Loaded:
    """What a load added, and the faults it found in the journals."""

    calls: int = 0
    stamps: int = 0
    faults: list[tuple[Path, Damage]] = field(default_factory=list)


def load(
    journals: Iterable[Path], database: Path, *, patience_s: float = WRITER_PATIENCE_S
) -> Loaded:
    """Load into a database what these journals hold beyond the last load.

    Raises `StoreError` if the database stays busy for *patience_s* or the disk is
    full; the journals are kept.
    """
    loaded = Loaded()
    with (
        _ONE_AT_A_TIME,
        without_cycle_search(),  # a third of the time
        writing(database, patience_s=patience_s) as connection,
    ):
        for journal in journals:
            _load(journal, connection, loaded)
    return loaded


def keep(rows: Iterable[Row], database: Path, *, run_id: str, name: str) -> None:
    """Append rows to the journal *name* in a run's folder, and load it."""
    path = journal_folder(database, run_id) / f"{name}.journal"
    with Writer(path, ahead=0) as journal:
        for count, row in enumerate(rows):
            journal.append(row)
            if count % FLUSHED == 0:
                journal.flush()
    load([path], database)


def rewrite(rows: Iterable[Row], database: Path, *, run_id: str, name: str) -> None:
    """Replace the rows of the journal *name* in a run's folder, and load it.

    A row that was loaded before stays in the database unless a new one has its key.
    """
    (journal_folder(database, run_id) / f"{name}.journal").unlink(missing_ok=True)
    keep(rows, database, run_id=run_id, name=name)


def _load(journal: Path, connection: duckdb.DuckDBPyConnection, loaded: Loaded) -> None:
    name = str(journal.resolve())
    reader = read(
        journal,
        offset=_bookmark(connection, name, journal),
        damaged=lambda fault: loaded.faults.append((journal, fault)),
    )
    for batch in _batches(reader):
        with transaction(connection):
            for kind, rows in batch.items():
                if kind == CALL:
                    calls, stamps = _store_calls(connection, rows, reader.layout[kind])
                    loaded.calls += calls
                    loaded.stamps += stamps
                else:
                    _store(connection, kind, rows, reader.layout[kind])
            connection.execute("DELETE FROM journals WHERE path = ?", [name])
            connection.execute(
                "INSERT INTO journals BY NAME SELECT ? AS path, ? AS loaded_bytes, ? AS mark",
                [name, reader.offset, _mark(journal, reader.offset)],
            )
    if reader.torn is not None:
        loaded.faults.append((journal, reader.torn))


def _bookmark(connection: duckdb.DuckDBPyConnection, name: str, journal: Path) -> int:
    rows = connection.execute(
        "SELECT loaded_bytes, mark FROM journals WHERE path = ?", [name]
    ).fetchall()
    for loaded, mark in rows:
        if journal.stat().st_size >= loaded and _mark(journal, loaded) == mark:
            return int(loaded)
    return 0


def _mark(journal: Path, offset: int) -> int:
    with journal.open("rb") as source:
        source.seek(max(0, offset - MARK_BYTES))
        return crc32(source.read(min(offset, MARK_BYTES)))


def _batches(reader: Reader) -> Iterator[Batch]:
    batch: Batch = {}
    size = 0
    for frame in reader.frames():
        if frame.kind not in TABLES:
            continue
        rows = batch.setdefault(frame.kind, [])
        rows.append(codec.values(frame.payload))
        size += len(frame.payload)
        if size >= BATCH_BYTES:
            yield batch
            batch = {}
            size = 0
    if batch:
        yield batch


def _store(
    connection: duckdb.DuckDBPyConnection, kind: int, rows: Rows, names: Sequence[str]
) -> None:
    target = TABLES[kind]
    if target.keeps == "last":
        key_of = itemgetter(*(names.index(name) for name in target.key))
        last = {key_of(row): row for row in rows}
        rows = list(last.values())
    pairs = [f'old."{name}" IS NOT DISTINCT FROM batch."{name}"' for name in target.key]
    same = " AND ".join(pairs)
    named = columns.by_name(rows, names)
    batch = columns.table(kind, named, _schema(connection, kind))
    connection.register("batch", batch)
    # S608: the names are our own, never a user's
    stored = f"{target.name} AS old"
    if target.keeps == "last":
        connection.execute(f"DELETE FROM {stored} USING batch WHERE {same}")  # noqa: S608
        connection.execute(f"INSERT INTO {target.name} BY NAME FROM batch")
    else:
        fresh = f"SELECT DISTINCT batch.* FROM batch ANTI JOIN {stored} ON {same}"  # noqa: S608
        connection.execute(f"INSERT INTO {target.name} BY NAME {fresh}")
    connection.unregister("batch")


def _store_calls(
    connection: duckdb.DuckDBPyConnection, rows: Rows, names: Sequence[str]
) -> tuple[int, int]:
    """Store new calls with their chunks; return how many calls and stamps were added."""
    id_of = itemgetter(names.index("request_id"))
    known = _known([id_of(row) for row in rows], connection)
    fresh = {id_of(row): row for row in reversed(rows) if id_of(row) not in known}
    if not fresh:
        return 0, 0
    in_order = list(reversed(fresh.values()))
    found = columns.by_name(in_order, names)
    next_id = connection.execute("SELECT coalesce(max(call_id) + 1, 0) FROM calls_row")
    ((first_id,),) = next_id.fetchall()
    found["call_id"] = range(first_id, first_id + len(fresh))
    chunks = columns.chunks(found["call_id"], found["chunks"])
    calls = columns.table(CALL, found, _schema(connection, CALL))
    connection.register("batch", calls)
    connection.register("chunks_batch", chunks)
    connection.execute("INSERT INTO chunks_row BY NAME FROM chunks_batch")
    connection.execute(_INSERT_CALLS)
    connection.unregister("batch")
    connection.unregister("chunks_batch")
    gaps = chunks["gap_us"].combine_chunks()
    return len(fresh), len(gaps.values)


def _known(request_ids: list[str], connection: duckdb.DuckDBPyConnection) -> set[str]:
    connection.register("batch", pl.DataFrame({"request_id": request_ids}))
    rows = connection.execute(
        "SELECT request_id FROM calls_row SEMI JOIN batch USING (request_id)"
    ).fetchall()
    return {request_id for (request_id,) in rows}


def _schema(connection: duckdb.DuckDBPyConnection, kind: int) -> pl.Schema:
    """Return the columns that a kind of row fills; a newer version's table may have more.

    They are the same in every database that is written, so they are read from the first one.
    """
    if kind not in _SCHEMAS:
        filled = columns.FILLED[kind]
        empty = connection.sql(f"FROM {TABLES[kind].name} LIMIT 0").pl()
        kept = {name: dtype for name, dtype in empty.schema.items() if name in filled}
        _SCHEMAS[kind] = pl.Schema(kept)
    return _SCHEMAS[kind]
