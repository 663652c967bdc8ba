"""What is listed, a page at a time: runs, decisions, comparisons; and the first page, with the latest of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Generic, TypeVar

import duckdb

from agentload.model.rows import ExecutionRow
from agentload.report.labels import VERDICT_TONES
from agentload.report.parts import Tone
from agentload.store import runs as stored
from agentload.store import tables
from agentload.store.runs import RunLine
from agentload.ui.pages import records
from agentload.ui.pages.jobs import JobLine, Raised, drawn, jobs, trends_of
from agentload.ui.source import Asked
from agentload.watch.history import Execution
from agentload.watch.rows import execution

T = TypeVar("T")

RUNS_A_PAGE: Final = 50
DECISIONS_A_PAGE: Final = 30
EXECUTIONS: Final = 40
GROUPS: Final = 15
LATEST: Final = 6
"""Of the first page."""
DRAWN: Final = 4
OF_GROUP: Final = 8
"""Runs, the latest."""
TONES: Final[dict[str, Tone]] = {str(word): tone for word, tone in VERDICT_TONES.items()}

_RUNS: Final = """
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
_DECISIONS: Final = """
SELECT run_id, at_ns, coalesce(job, policy), headline, verdict, kind, name, model,
    row_number() OVER (ORDER BY at_ns DESC, run_id) AS number, count(*) OVER () AS total
FROM decided
QUALIFY (number - 1) // $size = least($page, (total + $size - 1) // $size) - 1
ORDER BY number
"""
# What `agentload compare` wants to be equal, as far as it can be told without reading calls.
_GROUPS: Final = f"""
SELECT trace_name AS trace, model, kind, list(run_id ORDER BY place DESC)[:{OF_GROUP}] AS runs, count(*) AS count
FROM listed WHERE trace_hash IS NOT NULL
GROUP BY trace_hash, trace_name, model, kind, design, seed,
    json_extract(coalesce(study, options), '$.load'), json_extract(coalesce(study, options), '$.cache')
HAVING count(*) > 1 ORDER BY max(place) DESC LIMIT {GROUPS}
"""  # noqa: S608  # our own numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[T]):
    """One page of what was asked for, the latest first."""

    lines: tuple[T, ...]
    total: int
    first: int
    """The first one's place among all that were found, from 1; 0 where there is none."""
    size: int
    """Most lines of a page."""

    @property
    def page(self) -> int:
        """Which page this is, from 1."""
        return max(0, self.first - 1) // self.size + 1

    @property
    def pages(self) -> int:
        """How many there are."""
        return max(1, -(-self.total // self.size))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One run at a glance, and what came of it."""

    run: RunLine
    job: str | None
    headline: str | None
    answers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision."""

    run_id: str
    at_ns: int
    policy: str
    """The policy file, or the job."""
    headline: str
    verdict: str | None
    kind: str | None
    """None where the run is gone."""
    name: str | None
    model: str | None

    @property
    def tone(self) -> Tone:
        """How it is coloured."""
        return TONES.get(self.verdict or "", "plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that played the same plan, the latest first."""

    trace: str | None
    model: str | None
    kind: str
    runs: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """What can be compared, and what was."""

    executions: tuple[Execution, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What the page shows."""

    worse: tuple[Raised, ...]
    """Open alarms, of what changed too; the improvements left out."""
    better: tuple[Raised, ...]
    jobs: tuple[JobLine, ...]
    decisions: Listed[Decision]
    runs: Listed[ListedRun]
    unloaded: tuple[str, ...]
    """Runs that are in their journals only."""


def runs(connection: duckdb.DuckDBPyConnection, asked: Asked, *, size: int = RUNS_A_PAGE) -> Listed[ListedRun]:
    """Search the runs, by one query; of those alone that are shown, calls and blocks are counted. A page behind the end is the last."""
    wanted = {
        "kind": asked.word("kind"),
        "status": asked.word("status"),
        "job": asked.word("job"),
        "terms": asked.word("q").lower().split(),
        "page": asked.number("page"),
        "size": size,
    }
    rows = connection.execute(_RUNS, wanted).fetchall()
    shown = [row[0] for row in rows]
    headlines, answers = (dict(connection.execute(query, {"runs": shown}).fetchall()) for query in (_HEADLINES, _ANSWERS))
    told = {each.run_id: each for each in stored.told(connection, shown)}
    lines = tuple(ListedRun(run=told[run], job=job, headline=headlines.get(run), answers=answers.get(run, 0)) for run, job, *_ in rows)
    return _listed(lines, rows, size)


def decisions(connection: duckdb.DuckDBPyConnection, asked: Asked, *, size: int = DECISIONS_A_PAGE) -> Listed[Decision]:
    """Read what `advise` stored, and what a job's executions came to between their arms. A page behind the end is the last."""
    rows = connection.execute(_DECISIONS, {"size": size, "page": asked.number("page")}).fetchall()
    names = ("run_id", "at_ns", "policy", "headline", "verdict", "kind", "name", "model")
    return _listed(tuple(Decision(**dict(zip(names, row, strict=False))) for row in rows), rows, size)


def comparisons(connection: duckdb.DuckDBPyConnection, asked: Asked) -> Comparisons:  # noqa: ARG001  # a page's signature
    """Read each execution against its reference, and the runs of one plan that can be held against each other."""
    latest = reversed(tables.rows(connection, ExecutionRow))
    compared = (each for row in latest if (each := execution(row)).detail.reference is not None)
    return Comparisons(executions=tuple(islice(compared, EXECUTIONS)), groups=records(connection, Group, _GROUPS))


def overview(connection: duckdb.DuckDBPyConnection, asked: Asked) -> Overview:
    """Read what got worse, what was decided, how the jobs are, what was run; what is running comes from the journals."""
    found = jobs(connection, asked)
    held = _charted(connection, [each for each in found.alarms if each.alarm.is_open])
    return Overview(
        worse=tuple(each for each in held if each.alarm.kind != "improvement"),
        better=tuple(each for each in held if each.alarm.kind == "improvement"),
        jobs=found.lines,
        decisions=decisions(connection, asked, size=LATEST),
        runs=runs(connection, asked, size=LATEST),
        unloaded=_unloaded(connection, asked.journalled),
    )


def _unloaded(connection: duckdb.DuckDBPyConnection, journalled: tuple[str, ...]) -> tuple[str, ...]:
    loaded = connection.execute("SELECT run_id FROM listed WHERE list_contains($names, run_id)", {"names": list(journalled)}).fetchall()
    return tuple(sorted({*journalled} - {name for (name,) in loaded}, reverse=True))


def _charted(connection: duckdb.DuckDBPyConnection, held: list[Raised]) -> list[Raised]:
    """Put the first few pictures beside their alarms."""
    shown = [each for each in held if each.alarm.metric is not None][:DRAWN]
    series = {
        (name, each.name): each
        for name in dict.fromkeys(each.job for each in shown)
        for each in trends_of(connection, name, tuple(held)).series
    }
    charts = {key: drawn(series[key], job=key[0]).chart for each in shown if (key := (each.job, each.alarm.metric or "")) in series}
    return [replace(each, chart=charts.get((each.job, each.alarm.metric or ""))) for each in held]


def _listed(lines: tuple[T, ...], rows: Sequence[tuple[int, ...]], size: int) -> Listed[T]:
    """Return a page of rows that end in their number and the total."""
    first, total = rows[0][-2:] if rows else (0, 0)
    return Listed(lines=lines, total=total, first=first, size=size)
