"""The calls of a run as one frame of plain columns, a row an attempt, joined with the play that each belongs to."""

from collections.abc import Sequence
from typing import Final

import duckdb
import polars as pl

from agentload.evidence.plays import Play

# Sessions are numbered inside the database, and no list leaves it: a million calls are 200 MB.
_QUERY: Final = """
WITH own AS (SELECT session, retry_of FROM attempts WHERE run_id = $run),
sessions AS (SELECT session, row_number() OVER (ORDER BY session) - 1 AS number FROM (SELECT DISTINCT session FROM own)),
retried AS (SELECT DISTINCT retry_of FROM own WHERE retry_of IS NOT NULL)
SELECT p.play, c.leg, c.arm, c.workload, s.number AS session, c.turn, c.status, c.tail, c.prime, r.retry_of IS NULL AS is_last,
    c.began_ns, c.sent_ns, c.first_ns, c.last_ns, c.done_ns, c.ttft_ms, c.tpot_ms, c.turn_ms, c.lag_ms,
    c.prompt_tokens, c.context_tokens, c.cached_tokens, c.hit_rate, c.asked_tokens, coalesce(c.output_tokens, c.streamed_tokens) AS tokens,
    c.coalesced_reads, c.stamp_source, c.chunk_count, c.gap_p99_us / 1e3 AS gap_p99_ms
FROM turns AS c
JOIN sessions AS s USING (session)
LEFT JOIN plays AS p ON (p.leg, p.arm, p.pair) = (c.leg, c.arm, c.pair) AND c.released_ns BETWEEN p.started_ns AND p.until_ns
LEFT JOIN retried AS r ON r.retry_of = c.request_id
WHERE c.run_id = $run
"""
_FOR_EVER: Final = 2**63 - 1


def rows(connection: duckdb.DuckDBPyConnection, run_id: str, plays: Sequence[Play]) -> pl.DataFrame:
    """Read every attempt of a run; `play` is null for a call of a play that was never closed."""
    table = pl.DataFrame(
        [(play.number, play.leg, play.arm, play.pair, play.started_ns, play.ended_ns or _FOR_EVER) for play in plays],
        schema={"play": pl.Int64, "leg": pl.Int64, "arm": pl.String, "pair": pl.Int64, "started_ns": pl.Int64, "until_ns": pl.Int64},
        orient="row",
    )
    connection.register("plays", table)
    try:
        found: pl.DataFrame = connection.sql(_QUERY, params={"run": run_id}).pl()
        return found
    finally:
        connection.unregister("plays")


def total(frame: pl.DataFrame, column: str) -> float:
    """Add up a column; as floats, because a sum of 32-bit token counts overflows."""
    return float(frame[column].cast(pl.Float64).sum())
