"""Executions and alarms of all jobs as Parquet files."""

from __future__ import annotations

from pathlib import Path

from agentload.store.database import reading

# One row a change, so that a dashboard plots it as it is; executions without one have a row of their own.
_QUERIES = {
    "executions": """
        SELECT job, make_timestamp_ns(started_ns) AS started, make_timestamp_ns(due_ns) AS due, (ended_ns - started_ns) / 1e9 AS seconds,
            outcome, run_id, detail->>'reason' AS reason, detail->>'reference' AS reference, change->>'arm' AS arm,
            change->>'metric' AS metric, exp((change->>'log_ratio')::DOUBLE) - 1 AS change,
            exp((change->>'log_ratio')::DOUBLE - 1.96 * (change->>'error')::DOUBLE) - 1 AS low,
            exp((change->>'log_ratio')::DOUBLE + 1.96 * (change->>'error')::DOUBLE) - 1 AS high
        FROM executions LEFT JOIN LATERAL (SELECT unnest((detail->'changes')::JSON[]) AS change) ON true
        ORDER BY job, started_ns, arm, metric
    """,
    "alarms": """
        SELECT job, kind, metric, make_timestamp_ns(raised_ns) AS raised, make_timestamp_ns(closed_ns) AS closed, run_id,
            detail->>'message' AS message
        FROM alarms ORDER BY job, raised_ns, kind, metric
    """,
}


def parquet(database: Path, folder: Path) -> tuple[Path, ...]:
    """Write a file a table and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    with reading(database) as connection:
        for name, query in _QUERIES.items():
            path = folder / f"{name}.parquet"
            connection.sql(query).write_parquet(str(path))
            out.append(path)
    return tuple(out)
