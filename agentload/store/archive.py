"""Carry one run from a database to another as one file: `runs export`, `runs import`.

An archive is a tar that zstd has compressed, with three members in this order:

- `archive.json` says what the archive is: its format, the run, the version that wrote it,
  the number of rows, and whether it was redacted;
- `study.json` is the study that was played, as `agentload run` takes it, if the run has one;
- `rows.journal` has every row of the run as the database holds it, in the journal's format.

So an import is a load of one journal, and what holds for journals holds for archives:
damage is found by checksums, and archives of other versions are read. Equal rows give equal bytes.
Jobs, their executions and alarms belong to a schedule and stay where they are.
"""

import io
import json
import re
import shutil
import tarfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb
import msgspec
import zstandard

from agentload import __version__, documents
from agentload.errors import StoreError
from agentload.model.record import Record
from agentload.model.rows import ArmRow, BlockRow, CallRow, LegRow, Row, RunRow
from agentload.model.stamps import Stamps
from agentload.store import loader, tables
from agentload.store.database import AbsentError, reading
from agentload.store.journal import Writer, read
from agentload.store.places import journal_folder
from agentload.store.redaction import Redaction
from agentload.store.tables import TABLES

FORMAT: Final = "agentload-archive/1"
ABOUT, STUDY, ROWS = "archive.json", "study.json", "rows.journal"
LEVEL: Final = 9
BATCH: Final = 10_000
"""Rows that are taken from the database at a time."""
OF_SCHEDULES: Final = frozenset({"jobs", "executions", "alarms"})
NAME: Final = re.compile(r"(?!\.{1,2}$)[^/\\\0]{1,200}")
"""A run's name as a folder's."""
_HINT: Final = "an archive is what `agentload runs export RUN -o FILE` writes"
_DAMAGED: Final = (tarfile.TarError, zstandard.ZstdError, EOFError, msgspec.MsgspecError)

_CALLS: Final = """
SELECT {columns}, chunks.start_ns, chunks.gap_us, chunks.tokens
FROM calls_row LEFT JOIN chunks USING (call_id)
WHERE run_id = $run ORDER BY call_id
"""
_SESSIONS: Final = "SELECT DISTINCT session FROM calls_row WHERE run_id = $run ORDER BY session"


class Archive(Record):
    """What an archive says of itself."""

    run_id: str
    name: str
    kind: str
    rows: int
    redacted: bool
    version: str
    format: str = FORMAT


def export(database: Path, run_id: str, target: Path, *, redact: bool = False) -> Archive:
    """Write a run of a database to a file; a file that is there already is replaced as a whole."""
    if target.is_dir():
        raise StoreError(f"{target} is a folder", hint=f"--out {target / run_id}.tar.zst")
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=".export-") as folder:
        journal = Path(folder) / ROWS
        with reading(database) as connection:
            (run,) = tables.rows(connection, RunRow, run_id=run_id)
            rows = _rows(connection, run_id)
            if redact:
                rows = _redacted(connection, run_id, rows)
            count = _write(journal, rows)
        about = Archive(
            run_id=run_id,
            name=run.name,
            kind=run.kind,
            rows=count,
            redacted=redact,
            version=__version__,
        )
        packed = Path(folder) / "packed"
        _pack(packed, about, journal)
        packed.replace(target)
    return about


def import_(source: Path, database: Path) -> Archive:
    """Load the run of an archive into a database that does not have it yet."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=database.parent, prefix=".import-") as folder:
        journal = Path(folder) / ROWS
        about = _unpack(source, journal)
        _check_rows(journal, about, source)
        if _has_run(database, about.run_id):
            raise StoreError(
                f"{database} has run '{about.run_id}' already",
                hint=f"agentload runs delete {about.run_id} --db {database} --yes",
            )
        kept = journal_folder(database, about.run_id) / ROWS
        kept.parent.mkdir(parents=True, exist_ok=True)
        journal.replace(kept)
    loader.load([kept], database)
    return about


def _rows(connection: duckdb.DuckDBPyConnection, run_id: str) -> Iterator[Row]:
    """Yield all rows of a run, a kind after the other."""
    for table in TABLES.values():
        if table.row is CallRow:
            yield from _calls(connection, run_id)
        elif table.name not in OF_SCHEDULES:
            yield from tables.rows(connection, table.row, run_id=run_id)


def _calls(connection: duckdb.DuckDBPyConnection, run_id: str) -> Iterator[CallRow]:
    names = [each.name for each in fields(CallRow) if each.name != "chunks"]
    columns = ", ".join(f'calls_row."{name}"' for name in names)
    found = connection.execute(_CALLS.format(columns=columns), {"run": run_id})
    while batch := found.fetchmany(BATCH):
        for *values, start_ns, gaps, tokens in batch:
            stamps = None if start_ns is None else _stamps(start_ns, gaps, tokens)
            yield CallRow(**dict(zip(names, values, strict=True)), chunks=stamps)


def _stamps(start_ns: int, gaps: list[int | None], tokens: list[int]) -> Stamps:
    # The first chunk has no gap before it.
    packed = array("i", [gap or 0 for gap in gaps])
    return Stamps(first_ns=start_ns, gap_us=packed.tobytes(), tokens=array("H", tokens).tobytes())


def _redacted(
    connection: duckdb.DuckDBPyConnection, run_id: str, rows: Iterator[Row]
) -> Iterator[Row]:
    named = chain.from_iterable(
        tables.rows(connection, kind, run_id=run_id) for kind in (LegRow, ArmRow, BlockRow)
    )
    sessions = connection.execute(_SESSIONS, {"run": run_id}).fetchall()
    redaction = Redaction()
    redaction.learn(named, [name for (name,) in sessions])
    return map(redaction, rows)


def _write(journal: Path, rows: Iterable[Row]) -> int:
    count = 0
    with Writer(journal, ahead=0) as writer:
        for count, row in enumerate(rows, 1):
            writer.append(row)
            if count % BATCH == 0:
                writer.flush()
    return count


def _pack(target: Path, about: Archive, journal: Path) -> None:
    study = next((row.study for row in read(journal) if isinstance(row, RunRow)), None)
    with (
        zstandard.open(
            target, "wb", cctx=zstandard.ZstdCompressor(LEVEL, write_checksum=True)
        ) as out,
        tarfile.open(fileobj=out, mode="w|") as tar,
    ):
        _add(tar, ABOUT, json.dumps(asdict(about), indent=2).encode())
        if study is not None:
            _add(tar, STUDY, study.encode())
        with journal.open("rb") as source:
            tar.addfile(_member(ROWS, journal.stat().st_size), source)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_member(name, len(content)), io.BytesIO(content))


def _member(name: str, size: int) -> tarfile.TarInfo:
    # No owner and no time: equal rows give equal bytes.
    member = tarfile.TarInfo(name)
    member.size = size
    return member


def _unpack(source: Path, journal: Path) -> Archive:
    """Write an archive's rows to *journal*, and return what it says of itself."""
    about = None
    most = max(documents.ORDINARY, documents.EXPANDS * source.stat().st_size)
    try:
        with zstandard.open(source, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is None or member.size > most:
                    continue
                if member.name == ABOUT:
                    about = msgspec.json.decode(content.read(), type=Archive)
                elif member.name == ROWS:
                    with journal.open("wb") as out:
                        shutil.copyfileobj(content, out)
    except _DAMAGED as error:
        raise StoreError(f"{source}: no archive, or a damaged one: {error}", hint=_HINT) from error
    if about is None or not journal.exists():
        raise StoreError(f"{source}: the archive lacks rows.journal or archive.json", hint=_HINT)
    return about


def _check_rows(journal: Path, about: Archive, source: Path) -> None:
    """Raise `StoreError` unless a journal has just the rows that its archive names."""
    if about.format != FORMAT or not NAME.fullmatch(about.run_id):
        raise StoreError(f"{source}: an archive of another version", hint=_HINT)
    count = 0
    for row in read(journal):
        count += 1
        if getattr(row, "run_id", None) != about.run_id:
            raise StoreError(f"{source}: it has rows of another run", hint=_HINT)
    if count != about.rows:
        raise StoreError(
            f"{source}: {count:,} rows where there should be {about.rows:,}", hint=_HINT
        )


def _has_run(database: Path, run_id: str) -> bool:
    try:
        with reading(database) as connection:
            return bool(tables.rows(connection, RunRow, run_id=run_id))
    except AbsentError:
        return False
