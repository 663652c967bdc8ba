"""What the GPUs of each arm held at most while it was played, as they were sampled."""

from __future__ import annotations

import duckdb

# Each GPU's own peak: they are sampled one after the other, so that no instant has them all.
_QUERY = """
SELECT arm, sum(peak) FROM (
    SELECT s.arm, s.labels, max(s.value) AS peak FROM samples AS s WHERE s.run_id = $run AND s.name = 'gpu_memory_bytes' AND EXISTS (
        FROM blocks AS b WHERE (b.run_id, b.leg, b.arm) = (s.run_id, s.leg, s.arm) AND b.void IS NULL
            AND s.at_ns BETWEEN b.started_ns AND b.ended_ns
    ) GROUP BY ALL
) GROUP BY arm ORDER BY arm
"""


def gpu_memory(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, float]:
    """Return the bytes of each arm whose GPUs were sampled."""
    return {arm: float(peak) for arm, peak in connection.execute(_QUERY, {"run": run_id}).fetchall()}
