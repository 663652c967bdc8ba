"""Read the rows of small tables as they were stored; calls, chunks and samples are read through the views."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

import duckdb

from agentload.model.rows import (
    AlarmRow,
    AnswerRow,
    ArmRow,
    BlockRow,
    ExecutionRow,
    FingerprintRow,
    JobRow,
    LegRow,
    ProbeRow,
    Row,
    RunRow,
    VerdictRow,
)

_R = TypeVar("_R", bound=Row)

_TABLES: Final[Mapping[type[Any], tuple[str, str]]] = {
    RunRow: ("runs", ""),  # as they were stored
    LegRow: ("legs", "leg"),
    ArmRow: ("arms", "position"),
    FingerprintRow: ("fingerprints", "leg, at_ns, round, arm"),
    BlockRow: ("blocks", "leg, started_ns, arm"),
    AnswerRow: ("answers", "task, context_tokens, item, arm, repetition"),
    ProbeRow: ("probes", "at_ns"),
    VerdictRow: ("verdicts", "at_ns"),
    JobRow: ("jobs", "job"),
    ExecutionRow: ("executions", "started_ns, job"),
    AlarmRow: ("alarms", "raised_ns, kind, metric"),
}
"""The table of each kind of row, and its order."""


def rows(connection: duckdb.DuckDBPyConnection, kind: type[_R], **where: object) -> tuple[_R, ...]:
    """Return the rows of a kind with these column values."""
    table, order = _TABLES[kind]
    names = [field.name for field in fields(kind)]
    columns = ", ".join(f'"{name}"' for name in names)
    query = f"SELECT {columns} FROM {table}"  # noqa: S608  # our own names
    if where:
        query += " WHERE " + " AND ".join(f'"{name}" = ${name}' for name in where)
    if order:
        query += f" ORDER BY {order}"
    return tuple(kind(**dict(zip(names, found, strict=True))) for found in connection.execute(query, where).fetchall())
