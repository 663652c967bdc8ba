"""What a node measured in a round, as Parquet, and
how the shards of all nodes become rows of one run.

A shard has the key columns by which shards are checked against each other, and beside
them each row as its journal has it: the driver writes those into its own journal, moved
to its own clock, so that a run from many nodes is read, resumed and rebuilt as any other.
"""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from agentload.live.workers.messages import Shard
from agentload.model.rows import AnswerRow, CallRow, Row
from agentload.store import codec, journal

SCHEMA: Final = pa.schema(
    [
        ("share", pa.string()),
        ("kind", pa.uint8()),
        ("request_id", pa.string()),
        ("arm", pa.string()),
        ("session", pa.string()),
        ("turn", pa.int32()),
        ("status", pa.string()),
        ("at_ns", pa.int64()),
        ("record", pa.binary()),
    ]
)
_INSTANTS: Final = tuple(field.name for field in fields(CallRow) if field.name.endswith("_ns"))
Pair = tuple[str, str]
"""Arm and session."""


class Shards:
    """Cut a node's journals into a shard a round."""

    def __init__(self, journals: Sequence[Path], share: str, beside: Path | None) -> None:
        """Name shards by their *share*; put them *beside* this file, or keep none.

        What journals hold already is another driver's.
        """
        self._read_bytes = {path: _end(path) for path in journals}
        self._share = share
        self._beside = beside

    def cut(self, round_: int) -> Shard:
        """Return what was measured since the last shard."""
        rows: list[dict[str, object]] = []
        for path, offset in self._read_bytes.items():
            reader = journal.read(path, offset=offset, followed=True)
            for each in reader.frames():
                row = codec.row(each.kind, each.payload, reader.layout)
                if isinstance(row, CallRow | AnswerRow):
                    rows.append(self._line(each.kind, row, bytes(each.payload)))
            self._read_bytes[path] = reader.offset
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        if self._beside is not None:
            place = self._beside.with_name(
                f"{self._beside.stem}-round{round_:04}-{self._share[:12]}.parquet"
            )
            pq.write_table(table, place, compression="zstd")
            return Shard(share=self._share, rows=len(rows), place=place)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        return Shard(share=self._share, rows=len(rows), place=sink.getvalue().to_pybytes())

    def _line(self, kind: int, row: CallRow | AnswerRow, record: bytes) -> dict[str, object]:
        line: dict[str, object] = {
            "share": self._share,
            "kind": kind,
            "request_id": row.request_id,
            "arm": row.arm,
            "record": record,
        }
        if isinstance(row, CallRow):
            at_ns = row.released_ns if row.done_ns is None else row.done_ns
            line |= {"session": row.session, "turn": row.turn, "status": row.status, "at_ns": at_ns}
        return line


def _end(path: Path) -> int:
    if not path.exists():
        return 0
    reader = journal.read(path, followed=True)
    for _ in reader.frames():
        pass
    return reader.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Rows of all nodes in order of their end, on
    the driver's clock, and what speaks against them.
    """

    rows: tuple[Row, ...]
    fault: str | None


def merged(
    shards: Sequence[Shard],
    ahead_ns: Mapping[str, int],
    *,
    expected: Collection[Pair],
    drained_ns: Mapping[str, int | None],
) -> Merged:
    """Check the shards of a round and put their rows together.

    *ahead_ns* says by how much each share's clock is ahead of ours; *expected* are the sessions
    that were to be played; *drained_ns* is when each arm's load began to drain anywhere.
    """
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        paths = [
            _on_disk(shard, Path(folder) / f"{place}.parquet") for place, shard in enumerate(shards)
        ]
        connection.register(
            "wanted",
            pa.Table.from_pylist(
                [{"arm": arm, "session": session} for arm, session in expected], schema=_WANTED
            ),
        )
        connection.from_parquet([str(path) for path in paths]).create_view("shards")
        fault = _fault(connection, {shard.share: shard.rows for shard in shards})
        found = connection.execute("SELECT share, kind, record FROM shards").fetchall()
    rows = [_moved(kind, record, ahead_ns[share], drained_ns) for share, kind, record in found]
    return Merged(rows=tuple(sorted(rows, key=_ended_ns)), fault=fault)


_WANTED: Final = pa.schema([("arm", pa.string()), ("session", pa.string())])


def _on_disk(shard: Shard, path: Path) -> Path:
    if isinstance(shard.place, Path):
        return shard.place
    path.write_bytes(shard.place)
    return path


def _fault(connection: duckdb.DuckDBPyConnection, rows: Mapping[str, int]) -> str | None:
    """Say what is not as it should be: shards cut short or of another
    plan, calls or sessions twice, sessions that nobody played.
    """
    held = dict(connection.execute("SELECT share, count(*) FROM shards GROUP BY share").fetchall())
    if held != {share: count for share, count in rows.items() if count}:
        return (
            f"shards hold {sum(held.values()):,} rows of {len(held)} nodes, and nodes wrote "
            f"{sum(rows.values()):,}"
        )
    for said, query in _CHECKS.items():
        count, example = connection.execute(query).fetchall()[0]
        if count:
            return f"{count:,} {said}, such as {example}"
    return None


_CHECKS: Final[Mapping[str, str]] = {
    "calls were made twice": """
        SELECT count(*), min(request_id) FROM (
            SELECT request_id FROM shards WHERE session IS NOT NULL
                GROUP BY request_id HAVING count(*) > 1)
        """,
    "sessions were played by two nodes": """
        SELECT count(*), min(session) FROM (
            SELECT arm, session FROM shards WHERE session IS NOT NULL
                GROUP BY ALL HAVING count(DISTINCT share) > 1)
        """,
    "sessions were played by no node": """
        SELECT count(*), min(session) FROM wanted ANTI JOIN shards USING (arm, session)
        """,
}


def _moved(kind: int, record: bytes, ahead_ns: int, drained_ns: Mapping[str, int | None]) -> Row:
    """Return a row with its instants on the driver's clock."""
    row = codec.row(kind, memoryview(record), codec.NAMES)
    assert row is not None, kind
    if not isinstance(row, CallRow):
        return row
    moved = {
        name: at_ns - ahead_ns for name in _INSTANTS if (at_ns := getattr(row, name)) is not None
    }
    chunks = row.chunks and replace(row.chunks, first_ns=row.chunks.first_ns - ahead_ns)
    drain_ns = drained_ns.get(row.arm)
    tail = row.tail or (drain_ns is not None and moved["released_ns"] > drain_ns)
    return replace(row, **moved, chunks=chunks, tail=tail)


def _ended_ns(row: Row) -> tuple[int, int]:
    """Order calls by their end, answers of checks behind them."""
    if isinstance(row, CallRow):
        return 0, row.released_ns if row.done_ns is None else row.done_ns
    return 1, 0
