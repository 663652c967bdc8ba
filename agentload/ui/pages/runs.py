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
SELECT run_id, job, row_number() OVER (ORDER BY place DESC) AS number, count(*) OVER () AS total FROM listed
WHERE ($kind = '' OR kind = $kind) AND ($status = '' OR status = $status) AND ($job = '' OR job = $job)
    AND list_bool_and(list_transform($terms, lambda term:
        contains(lower(concat_ws(' ', run_id, name, model, trace_name, job, array_to_string(arms, ' '))), term)))
        IS NOT FALSE
QUALIFY (number - 1) // $size = least($page, (total + $size - 1) // $size) - 1
ORDER BY number
"""
_HEADLINES: Final = """
SELECT run_id, arg_max(headline, at_ns) FROM decided WHERE job IS NULL AND list_contains($runs, run_id) GROUP BY run_id
"""
_ANSWERS: Final = "SELECT run_id, count(*) FROM graded WHERE list_contains($runs, run_id) GROUP BY run_id"


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
    shown = [row[0] for row in rows]
    headlines, answers = (dict(connection.execute(query, {"runs": shown}).fetchall()) for query in (_HEADLINES, _ANSWERS))
    told = {each.run_id: each for each in runs.told(connection, shown)}
    return Runs(
        lines=tuple(Line(run=told[run], job=job, headline=headlines.get(run), answers=answers.get(run, 0)) for run, job, *_ in rows),
        total=total,
        page=(first - 1) // size + 1 if rows else 1,
        pages=max(1, -(-total // size)),
        first=first,
    )
