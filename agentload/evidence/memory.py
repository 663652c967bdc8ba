"""What the GPUs of each arm held at most while it was played, as they were sampled."""

import duckdb

from agentload.evidence.plays import plays, tabled

# Each GPU's own peak: they are sampled one after the other, so that no instant has them all.
_QUERY = """
SELECT arm, sum(peak) FROM (
    SELECT s.arm, s.labels, max(s.value) AS peak FROM readings AS s WHERE s.run_id = $run AND s.name = 'gpu_memory_bytes' AND EXISTS (
        FROM plays AS p WHERE (p.leg, p.arm) = (s.leg, s.arm) AND s.at_ns BETWEEN p.started_ns AND p.until_ns
    ) GROUP BY ALL
) GROUP BY arm ORDER BY arm
"""


def gpu_memory(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, float]:
    """Return the bytes of each arm whose GPUs were sampled."""
    with tabled(connection, [play for play in plays(connection, run_id) if not play.is_void]):
        return {arm: float(peak) for arm, peak in connection.execute(_QUERY, {"run": run_id}).fetchall()}
