"""Comparisons: each execution against its reference, and runs of one plan that can be held against each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

import duckdb

from agentload.model.rows import ExecutionRow
from agentload.store import tables
from agentload.ui.asked import Asked
from agentload.watch.history import Execution
from agentload.watch.rows import execution

SHOWN: Final = 40
GROUPS: Final = 15
RUNS: Final = 8
"""Of a group, the latest."""

# What `agentload compare` wants to be equal, as far as it can be told without reading calls.
_GROUPS: Final = f"""
SELECT trace_name, model, kind, list(run_id ORDER BY place DESC)[:{RUNS}], count(*)
FROM listed WHERE trace_hash IS NOT NULL
GROUP BY trace_hash, trace_name, model, kind, design, seed,
    json_extract(coalesce(study, options), '$.load'), json_extract(coalesce(study, options), '$.cache')
HAVING count(*) > 1 ORDER BY max(place) DESC LIMIT {GROUPS}
"""  # noqa: S608  # our own numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that played the same plan, the latest first."""

    trace: str | None
    model: str | None
    kind: str
    runs: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """What can be compared, and what was."""

    executions: tuple[Execution, ...]
    groups: tuple[Group, ...]


def read(connection: duckdb.DuckDBPyConnection, asked: Asked) -> Comparisons:  # noqa: ARG001  # a page's signature
    """Read both."""
    latest = reversed(tables.rows(connection, ExecutionRow))
    compared = (each for row in latest if (each := execution(row)).detail.reference is not None)
    return Comparisons(
        executions=tuple(islice(compared, SHOWN)),
        groups=tuple(
            Group(trace=trace, model=model, kind=kind, runs=tuple(runs), count=count)
            for trace, model, kind, runs, count in connection.execute(_GROUPS).fetchall()
        ),
    )
