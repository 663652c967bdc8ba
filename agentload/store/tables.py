"""Map each kind of row to its table, and read small tables as the rows that were stored.

Calls, chunks and samples are read through the views instead.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from agentload.model import rows as kinds
from agentload.model.record import Record
from agentload.model.rows import Row

if TYPE_CHECKING:  # the journals' readers need tables, and no database
    import duckdb

_R = TypeVar("_R", bound=Row)
_T = TypeVar("_T")


class RowTable(Record):
    """Where one kind of row is stored."""

    row: type[Row]
    name: str
    key: tuple[str, ...]
    order: str = ""
    """Columns by which its rows are sorted when read; empty: the order they were stored in."""
    keeps: Literal["first", "last"] = "last"
    """Which of two rows with equal keys stays."""


CALL: Final = 6
# Part of the journal's format: the number of a kind never changes.
TABLES: Final[Mapping[int, RowTable]] = {
    1: RowTable(row=kinds.RunRow, name="runs", key=("run_id",)),
    2: RowTable(row=kinds.LegRow, name="legs", key=("run_id", "leg"), order="leg"),
    3: RowTable(row=kinds.ArmRow, name="arms", key=("run_id", "arm"), order="position"),
    4: RowTable(
        row=kinds.FingerprintRow,
        name="fingerprints",
        key=("run_id", "leg", "arm", "round", "moment", "at_ns"),
        order="leg, at_ns, round, arm",
    ),
    # An arm plays one block a round; a repeated pair gets another round.
    5: RowTable(
        row=kinds.BlockRow,
        name="blocks",
        key=("run_id", "leg", "arm", "round"),
        order="leg, started_ns, arm",
    ),
    CALL: RowTable(row=kinds.CallRow, name="calls_row", key=("request_id",), keeps="first"),
    7: RowTable(
        row=kinds.SampleRow,
        name="samples",
        key=("run_id", "leg", "arm", "at_ns", "name", "labels"),
        keeps="first",
    ),
    8: RowTable(
        row=kinds.AnswerRow,
        name="answers",
        key=("run_id", "arm", "task", "item", "context_tokens", "depth", "repetition"),
        order="task, context_tokens, item, arm, repetition",
    ),
    9: RowTable(
        row=kinds.VerdictRow, name="verdicts", key=("run_id", "at_ns", "policy"), order="at_ns"
    ),
    10: RowTable(
        row=kinds.ProbeRow, name="probes", key=("run_id", "arm", "probe", "settings"), order="at_ns"
    ),
    11: RowTable(row=kinds.JobRow, name="jobs", key=("job",), order="job"),
    12: RowTable(
        row=kinds.ExecutionRow,
        name="executions",
        key=("job", "started_ns"),
        order="started_ns, job",
    ),
    13: RowTable(
        row=kinds.AlarmRow,
        name="alarms",
        key=("job", "kind", "metric", "raised_ns"),
        order="raised_ns, kind, metric",
    ),
}
_OF: Final[Mapping[type[Any], RowTable]] = {table.row: table for table in TABLES.values()}


def rows(
    connection: "duckdb.DuckDBPyConnection", kind: type[_R], **where: object
) -> tuple[_R, ...]:
    """Return the rows of a kind with these column values."""
    table = _OF[kind]
    columns = ", ".join(f'"{field.name}"' for field in fields(kind))
    query = f"SELECT {columns} FROM {table.name}"  # noqa: S608  # our own names
    if where:
        query += " WHERE " + " AND ".join(f'"{name}" = ${name}' for name in where)
    return records(
        connection, kind, query + (f" ORDER BY {table.order}" if table.order else ""), where
    )


def records(
    connection: "duckdb.DuckDBPyConnection",
    kind: type[_T],
    query: str,
    parameters: Mapping[str, Any],
) -> tuple[_T, ...]:
    """Return a query's rows as dataclasses, whose fields are its columns in the same order.

    A list becomes a tuple.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    found = connection.execute(query, parameters).fetchall()
    values = ([tuple(each) if isinstance(each, list) else each for each in row] for row in found)
    return tuple(kind(**dict(zip(names, row, strict=True))) for row in values)
