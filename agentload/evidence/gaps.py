"""Read how long users wait between chunks, and how long a token takes.

The two distributions are equal only where every chunk carries one token.
"""

from typing import Final

import duckdb
import numpy as np
import polars as pl

from advisor.evidence import Floats
from agentload.model.record import Record

QUANTILES: Final = (0.5, 0.95, 0.99)

# Gaps are whole µs, so counting equal ones keeps a hundred million of them exact in a few MB.
_QUERY: Final = """
WITH groups AS (
    SELECT workload, arm, row_number() OVER () AS number FROM (SELECT DISTINCT workload, arm
        FROM streams WHERE run_id = $run)
),
gaps AS (
    SELECT number, unnest(gap_us) AS gap_us, unnest(tokens) AS tokens FROM streams
        JOIN groups USING (workload, arm)
    WHERE run_id = $run AND status = 'ok'
),
counted AS (SELECT number, gap_us, tokens, count(*) AS times FROM gaps WHERE gap_us IS NOT NULL
    GROUP BY ALL)
SELECT workload, arm, gap_us, tokens, times FROM counted JOIN groups USING (number)
    ORDER BY workload, arm, gap_us, tokens
"""


class Gaps(Record):
    """Quantiles (see `QUANTILES`) of one workload on one arm over all clean calls.

    The first chunk of each call is left out.
    """

    workload: str
    arm: str
    chunks: int
    chunk_ms: tuple[float, ...]
    """Between two chunks: what a reader sees."""
    token_ms: tuple[float, ...]
    """A chunk's gap spread over its tokens: what the server takes for one."""


def gaps(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[Gaps, ...]:
    """Return the gaps of every workload on every arm."""
    counted = connection.sql(_QUERY, params={"run": run_id}).pl()
    return tuple(
        _gaps(str(workload), str(arm), rows)
        for (workload, arm), rows in counted.group_by("workload", "arm", maintain_order=True)
    )


def _gaps(workload: str, arm: str, rows: pl.DataFrame) -> Gaps:
    gap, tokens, times = (
        rows[name].cast(pl.Float64).to_numpy() for name in ("gap_us", "tokens", "times")
    )
    return Gaps(
        workload=workload,
        arm=arm,
        chunks=int(times.sum()),
        chunk_ms=_quantiles(gap / 1e3, times),
        token_ms=_quantiles(gap / tokens / 1e3, times * tokens),
    )


def _quantiles(values: Floats, weights: Floats) -> tuple[float, ...]:
    """Return, for each of `QUANTILES`, the smallest value that this share does not exceed."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return tuple(float(values[order][np.searchsorted(reached, q * reached[-1])]) for q in QUANTILES)
