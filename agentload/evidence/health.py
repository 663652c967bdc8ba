"""How well our own side kept up, arm by arm."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import duckdb
import polars as pl

from advisor.evidence import ClientHealth
from agentload.evidence.plays import Play, counted, tabled, total
from agentload.model.rows import LegRow
from agentload.store import tables


def health(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Sequence[str], plays: Sequence[Play], rows: pl.DataFrame
) -> tuple[ClientHealth, ...]:
    """Return one health record an arm; *rows* are the counted ones."""
    stall = _stall_ms(connection, run_id, {play.leg for play in plays if play.left_out is None})
    limits = _limited(connection, run_id, plays)
    return tuple(replace(_health(arm, plays, rows.filter(pl.col("arm") == arm), stall), limited_share=limits.get(arm)) for arm in arms)


def _health(arm: str, plays: Sequence[Play], rows: pl.DataFrame, stall_ms: float | None) -> ClientHealth:
    own = [play for play in plays if play.arm == arm]
    reads = rows.filter(pl.col("coalesced_reads").is_not_null() & (pl.col("chunk_count") > 0))
    sources = set(rows.filter(pl.col("chunk_count") > 0)["stamp_source"].unique())
    source: Literal["kernel", "user"] | None = "user" if "user" in sources else "kernel" if "kernel" in sources else None
    return ClientHealth(
        arm=arm,
        # The lower of the two: of fewer than 100 calls the upper one is the single worst.
        send_lag_p99_ms=rows["lag_ms"].quantile(0.99, interpolation="lower"),
        loop_stall_max_ms=stall_ms,
        coalesced_share=total(reads, "coalesced_reads") / total(reads, "chunk_count") if reads.height else None,
        stamp_source=source,
        void_blocks=sum(play.is_void for play in own),
        blocks=len(own),
    )


def _stall_ms(connection: duckdb.DuckDBPyConnection, run_id: str, legs: set[int]) -> float | None:
    found = [row.health for row in tables.rows(connection, LegRow, run_id=run_id) if row.leg in legs and row.health is not None]
    stalls = [json.loads(text).get("loop_stall_max_ms") for text in found]
    return max((float(stall) for stall in stalls if stall is not None), default=None)


# A busy server of its own accord says 503 (vLLM's queue is full); 429 is said by whoever counts requests of a key: in an answer's head,
# or in a stream whose head said 200 (`dispatch.call` puts its code before what it said).
_QUERY: Final = """
SELECT c.arm, count(*) FILTER (c.http_status = 429 OR (c.status = 'busy' AND starts_with(c.error, '429 '))) / count(*)
FROM attempts AS c JOIN plays AS p ON (p.leg, p.arm, p.pair) = (c.leg, c.arm, c.pair) AND c.released_ns BETWEEN p.started_ns AND p.ended_ns
WHERE c.run_id = $run AND c.http_status IS NOT NULL GROUP BY ALL
"""


def _limited(connection: duckdb.DuckDBPyConnection, run_id: str, plays: Sequence[Play]) -> Mapping[str, float]:
    """Return the share of attempts that were answered 429, by arm, in the plays that count."""
    with tabled(connection, counted(plays)):
        return dict(connection.execute(_QUERY, {"run": run_id}).fetchall())
