"""List a run's requests, and what its servers did from reading to reading, as plain tables."""

from collections.abc import Iterator
from typing import Final

import duckdb

REQUESTS: Final = """
SELECT arm, pair, workload, session, turn, attempt, status, prime, due_ns / 1e9 AS due_s,
    (released_ns - due_ns) / 1e6 AS held_ms, ttft_ms, tpot_ms, turn_ms, prompt_tokens,
    cached_tokens, output_tokens, asked_tokens, http_status, error
FROM turns WHERE run_id = $run ORDER BY leg, released_ns, arm, request_id
"""
# Counters only rise: what was added since the reading before is the interval's.
INTERVALS: Final = """
WITH read AS (
    SELECT leg, arm, at_ns, max(value) FILTER (name = 'running') AS running,
        max(value) FILTER (name = 'waiting') AS waiting,
        max(value) FILTER (name = 'kv_usage') AS kv_usage,
        max(value) FILTER (name = 'prompt_tokens') AS prompt_tokens,
        max(value) FILTER (name = 'output_tokens') AS output_tokens,
        max(value) FILTER (name = 'cached_tokens') AS cached_tokens,
        max(value) FILTER (name = 'preemptions') AS preemptions
    FROM samples WHERE run_id = $run AND labels IS NULL GROUP BY ALL
),
added AS (
    SELECT *, lag(at_ns) OVER one AS since_ns, lag(prompt_tokens) OVER one AS prompts,
        lag(output_tokens) OVER one AS outputs, lag(cached_tokens) OVER one AS cached,
        lag(preemptions) OVER one AS preempted
    FROM read WINDOW one AS (PARTITION BY leg, arm ORDER BY at_ns)
)
SELECT arm, at_ns / 1e9 AS at_s, (at_ns - since_ns) / 1e9 AS seconds, running, waiting, kv_usage,
    (prompt_tokens - prompts) / seconds AS prompt_tokens_per_s,
    (output_tokens - outputs) / seconds AS output_tokens_per_s,
    (cached_tokens - cached) / seconds AS cached_tokens_per_s,
    preemptions - preempted AS preemptions
FROM added WHERE since_ns IS NOT NULL ORDER BY leg, at_ns, arm
"""


def listing(
    connection: duckdb.DuckDBPyConnection, query: str, run_id: str
) -> Iterator[tuple[object, ...]]:
    """Yield the columns' names, then a row each; a value that is not there is None."""
    found = connection.execute(query, {"run": run_id})
    yield tuple(column[0] for column in found.description or ())
    while rows := found.fetchmany(10_000):
        yield from rows
