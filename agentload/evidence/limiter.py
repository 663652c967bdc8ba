"""What share of an arm's attempts were answered 429: a limiter's pace is not the server's."""

from collections.abc import Mapping, Sequence
from typing import Final

import duckdb

from agentload.evidence.plays import Play, counted, tabled

# A busy server of its own accord says 503 (vLLM's queue is full); 429 is said by whoever counts requests of a key: in an answer's head,
# or in a stream whose head said 200 (`dispatch.call` puts its code before what it said).
_QUERY: Final = """
SELECT c.arm, count(*) FILTER (c.http_status = 429 OR (c.status = 'busy' AND starts_with(c.error, '429 '))) / count(*)
FROM attempts AS c JOIN plays AS p ON (p.leg, p.arm, p.pair) = (c.leg, c.arm, c.pair) AND c.released_ns BETWEEN p.started_ns AND p.until_ns
WHERE c.run_id = $run AND c.http_status IS NOT NULL GROUP BY ALL
"""


def limited(connection: duckdb.DuckDBPyConnection, run_id: str, plays: Sequence[Play]) -> Mapping[str, float]:
    """Return the share of attempts that were answered 429, by arm, in the plays that count."""
    with tabled(connection, counted(plays)):
        return dict(connection.execute(_QUERY, {"run": run_id}).fetchall())
