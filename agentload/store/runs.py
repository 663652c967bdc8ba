"""The runs of a database: list them, summarise one, delete one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb

from agentload.errors import StoreError, nearest
from agentload.model.record import Record
from agentload.model.rows import ArmRow, LegRow, RunRow
from agentload.store import tables
from agentload.store.database import reading, transaction

# A run's `verdicts` and `samples` are deleted with it; jobs and alarms belong to a schedule.
TABLES: Final = (
    "legs",
    "arms",
    "fingerprints",
    "blocks",
    "samples",
    "answers",
    "probes",
    "verdicts",
    "runs",
)


class RunLine(Record):
    """One run at a glance."""

    run_id: str
    kind: str
    name: str
    created_ns: int | None
    """Wall clock; None for a simulation."""
    model: str | None
    arms: tuple[str, ...]
    status: str
    blocks: int
    void_blocks: int
    calls: int
    ok: int

    @property
    def ok_share(self) -> float | None:
        """Return which share of its calls ended well; None where it has no call."""
        return self.ok / self.calls if self.calls else None


class LegLine(Record):
    """One part of a run: a process with its health."""

    leg: int
    host: str
    status: str
    seconds: float | None
    health: Mapping[str, Any] | None


class ArmLine(Record):
    """One arm: its address and how its calls ended."""

    arm: str
    url: str | None
    profile: str | None
    model: str | None
    machine: str | None
    statuses: Mapping[str, int]
    """Attempts by how they ended, the most frequent first."""


class BlockLine(Record):
    """One play of a block; rates exclude its drain tail."""

    leg: int
    round: int
    pair: int
    block: int
    arm: str
    seconds: float | None
    drain_share: float | None
    calls: int
    ok: int
    output_tokens_per_s: float | None
    requests_per_s: float | None
    warmup: bool
    void: str | None


class RunSummary(Record):
    """A run in full."""

    run: RunLine
    trace: str | None
    trace_hash: str | None
    design: str | None
    seed: int
    version: str
    command: str
    legs: tuple[LegLine, ...]
    arms: tuple[ArmLine, ...]
    blocks: tuple[BlockLine, ...]


_LINES: Final = """
WITH chosen AS MATERIALIZED (SELECT * FROM listed WHERE run_id IN (SELECT unnest($runs::VARCHAR[])))
SELECT run_id, kind, name, nullif(created_ns, 0), model, coalesce(arms, []), coalesce(status,
    'unknown'),
    coalesce(b.blocks, 0), coalesce(b.void, 0), coalesce(c.calls, 0), coalesce(c.ok, 0)
FROM chosen
LEFT JOIN (
    SELECT run_id, count(*) AS blocks, count(void) AS void FROM blocks SEMI
        JOIN chosen USING (run_id) GROUP BY run_id
) AS b USING (run_id)
LEFT JOIN (
    SELECT run_id, count(*) AS calls, count(*) FILTER (status = 'ok') AS ok
    FROM calls_row SEMI JOIN chosen USING (run_id) GROUP BY run_id
) AS c USING (run_id)
ORDER BY place
"""

_MEASURED: Final = """
SELECT run_id FROM runs
WHERE kind = 'measured' AND model IS NOT DISTINCT FROM $model AND run_id <> $run
    AND run_id IN (SELECT run_id FROM blocks)
ORDER BY created_ns DESC, run_id LIMIT $latest
"""
_STARTS: Final = """
SELECT max_by(f.facts, f.at_ns) FROM runs AS r JOIN fingerprints AS f USING (run_id)
WHERE r.kind = 'measured' AND r.model IS NOT DISTINCT FROM $model AND r.run_id <> $run
    AND f.facts->>'$.check_ms' IS NOT NULL
GROUP BY r.run_id, r.created_ns, f.arm, f.facts->>'$.process_start_s'
    ORDER BY r.created_ns DESC LIMIT $latest
"""
# A stream cut by the drain counts for its share of the time, as if its tokens came evenly.
_BLOCKS: Final = """
WITH played AS (
    SELECT *, coalesce(drain_ns, ended_ns) AS until_ns, (coalesce(drain_ns,
        ended_ns) - started_ns) / 1e9 AS seconds,
        -- One that never ended was over when its pair was played again.
        coalesce(ended_ns, lead(started_ns) OVER (PARTITION BY leg, arm, pair
            ORDER BY started_ns) - 1) AS over_ns
    FROM blocks WHERE run_id = $run
),
counted AS (
    SELECT p.leg, p.arm, p.round, count(*) AS calls, count(*) FILTER (status = 'ok') AS ok,
        count(*) FILTER (status = 'ok' AND done_ns <= until_ns) AS finished,
        sum(output_tokens * CASE WHEN last_ns <= until_ns THEN 1.0
            WHEN first_ns >= until_ns THEN 0.0
            ELSE (until_ns - first_ns) / (last_ns - first_ns) END) AS tokens
    FROM played AS p JOIN calls_row AS c ON (c.run_id, c.leg, c.arm, c.pair) = (p.run_id, p.leg,
        p.arm, p.pair)
        AND c.released_ns BETWEEN p.started_ns AND coalesce(p.over_ns, c.released_ns)
    GROUP BY ALL
)
SELECT leg, round, pair, block, arm, (ended_ns - started_ns) / 1e9, (ended_ns - drain_ns) /
    nullif(ended_ns - started_ns, 0),
    coalesce(calls, 0), coalesce(ok, 0), tokens / nullif(seconds, 0), finished / nullif(seconds,
        0), warmup, void
FROM played LEFT JOIN counted USING (leg, arm, round) ORDER BY leg, round, arm
"""


def lines(connection: duckdb.DuckDBPyConnection) -> tuple[RunLine, ...]:
    """List the runs in the order they were stored."""
    return run_lines(connection, _names(connection))


_INVALID: Final = """
SELECT run_id FROM legs WHERE list_contains($runs, run_id)
GROUP BY run_id HAVING bool_and(coalesce(health->>'$.void', '') <> '')
"""


def invalid_runs(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> frozenset[str]:
    """Return those of the runs each of whose parts says that nothing of it counts."""
    found = connection.execute(_INVALID, {"runs": list(names)}).fetchall()
    return frozenset(run for (run,) in found)


def run_lines(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> tuple[RunLine, ...]:
    """List the runs of these names, in the order they were stored."""
    return tables.records(connection, RunLine, _LINES, {"runs": list(names)})


def find_run(connection: duckdb.DuckDBPyConnection, name: str) -> RunLine:
    """Return the run with this name, or the only run with this prefix.

    Raises `StoreError` if no run or several match.
    """
    return run_lines(connection, [_match(_names(connection), name, "the database")])[0]


def summary(connection: duckdb.DuckDBPyConnection, name: str) -> RunSummary:
    """Describe a run in full; raise `StoreError` if there is none."""
    line = find_run(connection, name)
    (row,) = tables.rows(connection, RunRow, run_id=line.run_id)
    return RunSummary(
        run=line,
        trace=row.trace_name,
        trace_hash=row.trace_hash,
        design=row.design,
        seed=row.seed,
        version=row.version,
        command=row.command,
        legs=_legs(connection, line.run_id),
        arms=_arms(connection, line.run_id),
        blocks=tables.records(connection, BlockLine, _BLOCKS, {"run": line.run_id}),
    )


def latest_runs(
    connection: duckdb.DuckDBPyConnection, *, model: str | None, but: str, latest: int
) -> list[str]:
    """Return a model's latest measured runs that played blocks, newest first, except *but*."""
    rows = connection.execute(_MEASURED, {"model": model, "run": but, "latest": latest}).fetchall()
    return [name for (name,) in rows]


def latest_starts(
    connection: duckdb.DuckDBPyConnection, *, model: str | None, but: str, latest: int
) -> list[dict[str, Any]]:
    """Return the servers' facts after each of their latest starts in a model's measured runs.

    The run *but* is left out.
    """
    rows = connection.execute(_STARTS, {"model": model, "run": but, "latest": latest}).fetchall()
    return [json.loads(facts) for (facts,) in rows]


def sample_names(connection: duckdb.DuckDBPyConnection, run_id: str) -> frozenset[str]:
    """Return the names of a run's samples.

    A query that joins samples and plays takes ten times as long, also where it finds none.
    """
    found = connection.execute("SELECT DISTINCT name FROM samples WHERE run_id = ?", [run_id])
    return frozenset(name for (name,) in found.fetchall())


def delete(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    """Delete every row of a run, in one transaction."""
    with transaction(connection):
        connection.execute(
            "DELETE FROM chunks_row WHERE call_id IN (SELECT call_id FROM calls_row WHERE "
            "run_id = ?)",
            [run_id],
        )
        for table in ("calls_row", *TABLES):
            # S608: the names are our own, never a user's
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])  # noqa: S608
        # Forget all bookmarks: a journal of the run is read from its start if it is loaded again.
        connection.execute("DELETE FROM journals")


def _names(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """List all runs in the order they were stored."""
    return [name for (name,) in connection.execute("SELECT run_id FROM runs").fetchall()]


def _legs(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[LegLine, ...]:
    return tuple(
        LegLine(
            leg=row.leg,
            host=row.host,
            status=row.status,
            seconds=None if row.ended_ns is None else (row.ended_ns - row.monotonic_ns) / 1e9,
            health=None if row.health is None else json.loads(row.health),
        )
        for row in tables.rows(connection, LegRow, run_id=run_id)
    )


def _arms(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[ArmLine, ...]:
    counted = connection.execute(
        "SELECT arm, status, count(*) FROM calls_row WHERE run_id = ? GROUP BY arm, status "
        "ORDER BY count(*) DESC, status",
        [run_id],
    ).fetchall()
    return tuple(
        ArmLine(
            arm=row.arm,
            url=row.url,
            profile=row.profile,
            model=row.model,
            machine=row.machine,
            statuses={status: count for of, status, count in counted if of == row.arm},
        )
        for row in tables.rows(connection, ArmRow, run_id=run_id)
    )


def run_named(database: Path, wanted: str | None) -> str:
    """Return the run that *wanted* names in full or by prefix, or the latest run for None.

    Raises `StoreError` if no run or several match.
    """
    with reading(database) as connection:
        runs = _names(connection)
    if runs and wanted is None:
        return runs[-1]
    return _match(runs, wanted or "", str(database))


def _match(runs: Sequence[str], wanted: str, where: str) -> str:
    if not runs:
        raise StoreError(
            f"{where} has no runs",
            hint="agentload replay TRACE --endpoints ENDPOINTS makes one; agentload runs load "
            "reads journals",
        )
    if wanted in runs:
        found = [wanted]
    else:
        found = [run for run in runs if wanted and run.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    latest = f"runs: {', '.join((found or runs)[-8:])}"
    if found:
        raise StoreError(f"{len(found)} runs start with '{wanted}' in {where}", hint=latest)
    raise StoreError(f"no run '{wanted}' in {where}", hint=nearest(wanted, runs, otherwise=latest))
