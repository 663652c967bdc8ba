"""The decisions: what `advise` stored, and what a job's executions came to between their arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import duckdb

from agentload.report.labels import VERDICT_TONES
from agentload.report.parts import Tone
from agentload.ui.asked import Asked

PER_PAGE: Final = 30
_TONES: Final[dict[str, Tone]] = {str(word): tone for word, tone in VERDICT_TONES.items()}

_QUERY: Final = """
SELECT run_id, at_ns, coalesce(job, policy), headline, verdict, kind, name, model,
    row_number() OVER (ORDER BY at_ns DESC, run_id) AS number, count(*) OVER () AS total
FROM decided
QUALIFY (number - 1) // $size = least($page, (total + $size - 1) // $size) - 1
ORDER BY number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One decision."""

    run_id: str
    at_ns: int
    policy: str
    """The policy file, or the job."""
    headline: str
    tone: Tone
    kind: str | None
    """None where the run is gone."""
    name: str | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """One page of decisions, the latest first."""

    lines: tuple[Line, ...]
    total: int
    page: int
    pages: int


def read(connection: duckdb.DuckDBPyConnection, asked: Asked, *, size: int = PER_PAGE) -> Decisions:
    """Read one page; one behind the end is the last."""
    rows = connection.execute(_QUERY, {"size": size, "page": asked.number("page")}).fetchall()
    first, total = (rows[0][-2], rows[0][-1]) if rows else (1, 0)
    return Decisions(
        lines=tuple(
            Line(
                run_id=run_id,
                at_ns=at_ns,
                policy=policy,
                headline=headline,
                tone=_TONES.get(verdict, "plain"),
                kind=kind,
                name=name,
                model=model,
            )
            for run_id, at_ns, policy, headline, verdict, kind, name, model, *_ in rows
        ),
        total=total,
        page=(first - 1) // size + 1,
        pages=max(1, -(-total // size)),
    )
