"""The runs: searched, filtered and cut into pages by one query, which counts the calls of those alone that it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import duckdb

from agentload.ui.asked import Asked

PER_PAGE: Final = 50

_QUERY: Final = """
WITH named AS (SELECT run_id, list(arm ORDER BY position) AS arms FROM arms GROUP BY run_id),
ended AS (SELECT run_id, arg_max(status, leg) AS status FROM legs GROUP BY run_id),
watched AS (SELECT run_id, max(job) AS job FROM executions WHERE run_id IS NOT NULL GROUP BY run_id),
found AS (
    SELECT r.run_id, r.kind, r.name, r.created_ns, r.model, coalesce(arms, []) AS arms, coalesce(status, 'unknown') AS status, job,
        row_number() OVER (ORDER BY r.rowid DESC) AS number, count(*) OVER () AS total
    FROM runs AS r LEFT JOIN named USING (run_id) LEFT JOIN ended USING (run_id) LEFT JOIN watched USING (run_id)
    WHERE ($kind = '' OR r.kind = $kind) AND ($status = '' OR status = $status) AND ($job = '' OR job = $job)
        AND list_bool_and(list_transform($terms, lambda term:
            contains(lower(concat_ws(' ', r.run_id, r.name, r.model, r.trace_name, job, array_to_string(arms, ' '))), term)))
            IS NOT FALSE
),
chosen AS MATERIALIZED (SELECT * FROM found WHERE (number - 1) // $size = least($page, (total + $size - 1) // $size) - 1),
counted AS (
    SELECT run_id, count(*) AS calls, count(*) FILTER (status = 'ok') AS ok FROM calls_row
    WHERE run_id IN (SELECT run_id FROM chosen) GROUP BY run_id
),
answered AS (SELECT run_id, count(*) AS answers FROM answers WHERE run_id IN (SELECT run_id FROM chosen) GROUP BY run_id),
played AS (
    SELECT run_id, count(*) AS blocks, count(void) AS void FROM blocks
    WHERE run_id IN (SELECT run_id FROM chosen) GROUP BY run_id
),
decided AS (
    SELECT run_id, arg_max(decision->>'headline', at_ns) AS headline FROM verdicts
    WHERE run_id IN (SELECT run_id FROM chosen) GROUP BY run_id
)
SELECT run_id, kind, name, nullif(created_ns, 0), model, arms, status, job, headline, coalesce(blocks, 0), coalesce(void, 0),
    coalesce(calls, 0), coalesce(ok, 0), coalesce(answers, 0), number, total
FROM chosen LEFT JOIN counted USING (run_id) LEFT JOIN answered USING (run_id)
    LEFT JOIN played USING (run_id) LEFT JOIN decided USING (run_id)
ORDER BY number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One run at a glance."""

    run_id: str
    kind: str
    name: str
    created_ns: int | None
    """Wall clock; None for a simulation, which has no date."""
    model: str | None
    arms: tuple[str, ...]
    status: str
    job: str | None
    headline: str | None
    blocks: int
    void_blocks: int
    calls: int
    ok: int
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
    return Runs(
        lines=tuple(_line(row) for row in rows),
        total=total,
        page=(first - 1) // size + 1 if rows else 1,
        pages=max(1, -(-total // size)),
        first=first,
    )


def _line(row: tuple[Any, ...]) -> Line:
    run_id, kind, name, created_ns, model, arms, status, job, headline, blocks, void, calls, ok, answers, *_ = row
    return Line(
        run_id=run_id,
        kind=kind,
        name=name,
        created_ns=created_ns,
        model=model,
        arms=tuple(arms),
        status=status,
        job=job,
        headline=headline,
        blocks=blocks,
        void_blocks=void,
        calls=calls,
        ok=ok,
        answers=answers,
    )
