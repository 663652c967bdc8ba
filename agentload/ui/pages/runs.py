"""The runs: searched, filtered and cut into pages by one query; of those alone that are shown, calls and blocks are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import duckdb

from agentload.store import runs
from agentload.store.runs import RunLine
from agentload.ui.asked import Asked

PER_PAGE: Final = 50

_QUERY: Final = """
WITH named AS (SELECT run_id, list(arm ORDER BY position) AS arms FROM arms GROUP BY run_id),
ended AS (SELECT run_id, arg_max(status, leg) AS status FROM legs GROUP BY run_id),
watched AS (SELECT run_id, max(job) AS job FROM executions WHERE run_id IS NOT NULL GROUP BY run_id),
found AS (
    SELECT r.run_id, job, row_number() OVER (ORDER BY r.rowid DESC) AS number, count(*) OVER () AS total
    FROM runs AS r LEFT JOIN named USING (run_id) LEFT JOIN ended USING (run_id) LEFT JOIN watched USING (run_id)
    WHERE ($kind = '' OR r.kind = $kind) AND ($status = '' OR status = $status) AND ($job = '' OR job = $job)
        AND list_bool_and(list_transform($terms, lambda term:
            contains(lower(concat_ws(' ', r.run_id, r.name, r.model, r.trace_name, job, array_to_string(arms, ' '))), term)))
            IS NOT FALSE
),
chosen AS MATERIALIZED (SELECT * FROM found WHERE (number - 1) // $size = least($page, (total + $size - 1) // $size) - 1),
answered AS (SELECT run_id, count(*) AS answers FROM answers WHERE run_id IN (SELECT run_id FROM chosen) GROUP BY run_id),
decided AS (
    SELECT run_id, arg_max(decision->>'headline', at_ns) AS headline FROM verdicts
    WHERE run_id IN (SELECT run_id FROM chosen) GROUP BY run_id
)
SELECT run_id, job, headline, coalesce(answers, 0), number, total
FROM chosen LEFT JOIN answered USING (run_id) LEFT JOIN decided USING (run_id)
ORDER BY number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One run at a glance, and what came of it."""

    run: RunLine
    job: str | None
    headline: str | None
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """One page of the runs that were asked for, the latest first."""

    lines: tuple[Line, ...]
    total: int
    page: int
    pages: int
    first: int
    """The first one's place among all that were found, from 1."""


def read(connection: duckdb.DuckDBPyConnection, asked: Asked, *, size: int = PER_PAGE) -> Runs:
    """Read one page; one behind the end is the last."""
    wanted = {
        "kind": asked.word("kind"),
        "status": asked.word("status"),
        "job": asked.word("job"),
        "terms": asked.word("q").lower().split(),
        "page": asked.number("page"),
        "size": size,
    }
    rows = connection.execute(_QUERY, wanted).fetchall()
    first, total = (rows[0][-2], rows[0][-1]) if rows else (0, 0)
    told = {each.run_id: each for each in runs.told(connection, [row[0] for row in rows])}
    return Runs(
        lines=tuple(Line(run=told[run], job=job, headline=headline, answers=answers) for run, job, headline, answers, *_ in rows),
        total=total,
        page=(first - 1) // size + 1 if rows else 1,
        pages=max(1, -(-total // size)),
        first=first,
    )
