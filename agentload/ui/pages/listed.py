"""Paged lists of runs, decisions and comparisons, and the overview with the latest of each."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Final, Generic, TypeVar

import duckdb
from msgspec import field

from agentload.model.metrics import NOT_OUTCOMES
from agentload.model.record import Record
from agentload.model.rows import ExecutionRow
from agentload.report.charts.spec import Plot
from agentload.report.labels import VERDICT_TONES
from agentload.report.parts import Tone
from agentload.store import runs as stored
from agentload.store import tables
from agentload.store.runs import RunLine
from agentload.ui.pages import records
from agentload.ui.pages.jobs import JobLine, Raised, jobs, trend, trends_of
from agentload.ui.source import Query
from agentload.watch.history import Execution
from agentload.watch.ledger import execution

T = TypeVar("T")

RUNS_A_PAGE: Final = 50
DECISIONS_A_PAGE: Final = 30
EXECUTIONS: Final = 40
GROUPS: Final = 15
LATEST: Final = 6
"""Lines of each list on the overview."""
DRAWN: Final = 4
OF_GROUP: Final = 8
TONES: Final[dict[str, Tone]] = {str(word): tone for word, tone in VERDICT_TONES.items()}

_RUNS: Final = """
SELECT run_id, job, row_number() OVER (ORDER BY place DESC) AS number, count(*) OVER () AS total
    FROM listed
WHERE ($kind = '' OR kind = $kind) AND ($status = '' OR status = $status) AND ($job = ''
    OR job = $job)
    AND ($model = '' OR model = $model) AND ($arm = '' OR list_contains(arms, $arm))
    AND ($since = '' OR created_ns >= epoch_ns(TRY_CAST($since AS DATE)::TIMESTAMP))
    AND ($until = ''
        OR created_ns < epoch_ns((TRY_CAST($until AS DATE) + INTERVAL 1 DAY)::TIMESTAMP))
    AND list_bool_and(list_transform($terms, lambda term:
        contains(lower(concat_ws(' ', run_id, name, model, trace_name, job, array_to_string(arms,
            ' '))), term)))
        IS NOT FALSE
QUALIFY (number - 1) // $size = least($page, (total + $size - 1) // $size) - 1
ORDER BY number
"""
_FACETS: Final = """
WITH known AS MATERIALIZED (SELECT model, kind, status, arms FROM listed)
SELECT 'model' AS facet, model AS value, count(*) AS count FROM known WHERE model IS NOT NULL
    GROUP BY model
UNION ALL SELECT 'arm', arm, count(*) FROM (SELECT unnest(arms) AS arm FROM known) GROUP BY arm
UNION ALL SELECT 'kind', kind, count(*) FROM known GROUP BY kind
UNION ALL SELECT 'status', status, count(*) FROM known WHERE status IS NOT NULL GROUP BY status
ORDER BY facet, count DESC, value
"""
_HEADLINES: Final = """
SELECT run_id, arg_max({'headline': headline, 'version': version}, at_ns) FROM decided
    WHERE list_contains($runs, run_id) GROUP BY run_id
"""
_ANSWERS: Final = (
    "SELECT run_id, count(*) FROM graded WHERE list_contains($runs, run_id) GROUP BY run_id"
)
_INVALID: Final = (
    "SELECT DISTINCT run_id FROM changes WHERE outcome = 'void' AND list_contains($runs, run_id)"
)
_FAILED: Final = """
SELECT run_id, count(*) FROM attempts WHERE list_contains($runs, run_id)
    AND status NOT IN ('ok', 'not_sent') AND NOT list_contains($planned, status) GROUP BY run_id
"""
_DECISIONS: Final = """
SELECT run_id, at_ns, coalesce(job, policy) AS policy, headline, verdict, version, kind, name,
    model,
    row_number() OVER (ORDER BY at_ns DESC, run_id) AS number, count(*) OVER () AS total
FROM decided
QUALIFY (number - 1) // $size = least($page, (total + $size - 1) // $size) - 1
ORDER BY number
"""
# What `agentload compare` requires to be equal, as far as it is known without reading calls.
_GROUPS: Final = f"""
SELECT trace_name AS trace, model, kind, list(run_id ORDER BY place DESC)[:{OF_GROUP}] AS runs,
    count(*) AS count
FROM listed WHERE trace_hash IS NOT NULL
GROUP BY trace_hash, trace_name, model, kind, design, seed,
    json_extract(coalesce(study, options), '$.load'), json_extract(coalesce(study, options),
        '$.cache')
HAVING count(*) > 1 ORDER BY max(place) DESC LIMIT {GROUPS}
"""  # noqa: S608  # our own numbers


class ListPage(Record, Generic[T]):
    """One page of a list, latest first."""

    lines: tuple[T, ...]
    total: int
    first: int
    """Position of the first line among all matches, from 1; 0 if there are none."""
    size: int
    facets: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """What it can be narrowed to, with how many runs each has in all."""

    @property
    def page(self) -> int:
        """Return the number of this page, from 1."""
        return max(0, self.first - 1) // self.size + 1

    @property
    def pages(self) -> int:
        """Return how many pages there are."""
        return max(1, -(-self.total // self.size))

    @property
    def last(self) -> int:
        """Return the position of the last line among all matches."""
        return self.first + len(self.lines) - 1

    @property
    def newer(self) -> int | None:
        """Return the number of the page before this one; None on the first."""
        return self.page - 1 if self.page > 1 else None

    @property
    def older(self) -> int | None:
        """Return the number of the page after this one; None on the last."""
        return self.page + 1 if self.page < self.pages else None


class ListedRun(Record):
    """One run and its decision."""

    run: RunLine
    job: str | None
    headline: str | None
    version: str | None
    """Of the agentload that decided."""
    answers: int
    is_invalid: bool = False
    """Nobody could use any of its figures."""
    failed: int = 0
    """Calls that ended otherwise than they should; those that were cut short by plan did not."""


class DecisionLine(Record):
    """One decision."""

    run_id: str
    at_ns: int
    policy: str
    headline: str
    verdict: str | None
    version: str | None
    """Of the agentload that decided; None where it is not known."""
    kind: str | None
    """None if the run was deleted."""
    name: str | None
    model: str | None

    @property
    def tone(self) -> Tone:
        """Return the colour of the decision."""
        return TONES.get(self.verdict or "", "plain")


class SamePlan(Record):
    """Runs of the same plan, latest first."""

    trace: str | None
    model: str | None
    kind: str
    runs: tuple[str, ...]
    count: int


class Comparisons(Record):
    """Runs that can be compared, and comparisons made."""

    executions: tuple[Execution, ...]
    groups: tuple[SamePlan, ...]


class OverviewPage(Record):
    """The data of the overview."""

    worse: tuple[Raised, ...]
    """Open alarms, without improvements."""
    better: tuple[Raised, ...]
    jobs: tuple[JobLine, ...]
    decisions: ListPage[DecisionLine]
    runs: ListPage[ListedRun]
    unloaded: tuple[str, ...]
    """Runs that are only in their journals."""

    @property
    def got_worse(self) -> int:
        """Count what got worse in all jobs."""
        return sum(each.worse for each in self.jobs)


def runs(
    connection: duckdb.DuckDBPyConnection, query: Query, *, size: int = RUNS_A_PAGE
) -> ListPage[ListedRun]:
    """Search the runs with one query; a page past the end is the last page.

    Only the runs shown have their calls and blocks counted.
    """
    wanted = {
        "kind": query.word("kind"),
        "status": query.word("status"),
        **{word: query.word(word) for word in ("job", "model", "arm", "since", "until")},
        "terms": query.word("q").lower().split(),
        "page": query.page_number,
        "size": size,
    }
    rows = connection.execute(_RUNS, wanted).fetchall()
    shown = [row[0] for row in rows]
    decided = dict(connection.execute(_HEADLINES, {"runs": shown}).fetchall())
    answers = dict(connection.execute(_ANSWERS, {"runs": shown}).fetchall())
    summaries = {each.run_id: each for each in stored.run_lines(connection, shown)}
    unused = {run for (run,) in connection.execute(_INVALID, {"runs": shown}).fetchall()}
    invalid = unused | stored.invalid_runs(connection, shown)
    planned = sorted(NOT_OUTCOMES)
    failed = dict(connection.execute(_FAILED, {"runs": shown, "planned": planned}).fetchall())
    lines = []
    for run, job, *_ in rows:
        decision = decided.get(run, {"headline": None, "version": None})
        line = ListedRun(
            run=summaries[run],
            job=job,
            answers=answers.get(run, 0),
            is_invalid=run in invalid,
            failed=failed.get(run, 0),
            **decision,
        )
        lines.append(line)
    found = _listed(tuple(lines), rows, size)
    if query.page == "runs":
        return replace(found, facets=_facets(connection))
    return found


def _facets(connection: duckdb.DuckDBPyConnection) -> dict[str, tuple[tuple[str, int], ...]]:
    """Read what the list can be narrowed to."""
    facets: dict[str, tuple[tuple[str, int], ...]] = {}
    for facet, value, count in connection.execute(_FACETS).fetchall():
        facets[facet] = (*facets.get(facet, ()), (value, count))
    return facets


def decisions(
    connection: duckdb.DuckDBPyConnection, query: Query, *, size: int = DECISIONS_A_PAGE
) -> ListPage[DecisionLine]:
    """Read stored decisions, and those of job executions; past the end is the last page."""
    rows = connection.execute(_DECISIONS, {"size": size, "page": query.page_number}).fetchall()
    names = [each.name for each in fields(DecisionLine)]
    lines = tuple(DecisionLine(**dict(zip(names, row, strict=False))) for row in rows)
    return _listed(lines, rows, size)


# a page's signature
def comparisons(connection: duckdb.DuckDBPyConnection, query: Query) -> Comparisons:  # noqa: ARG001
    """Read executions with their references, and the runs of one plan, which can be compared."""
    latest = map(execution, reversed(tables.rows(connection, ExecutionRow)))
    compared = (each for each in latest if each.detail.reference is not None)
    return Comparisons(
        executions=tuple(islice(compared, EXECUTIONS)),
        groups=records(connection, SamePlan, _GROUPS),
    )


def overview(connection: duckdb.DuckDBPyConnection, query: Query) -> OverviewPage:
    """Read regressions, decisions, jobs and runs; active runs come from the journals."""
    found = jobs(connection, query)
    held = _charted(connection, [each for each in found.alarms if each.alarm.is_open])
    worse = [each for each in held if each.alarm.kind != "improvement"]
    return OverviewPage(
        worse=tuple(sorted(worse, key=lambda each: each.alarm.is_muted(query.today_ns))),
        better=tuple(each for each in held if each.alarm.kind == "improvement"),
        jobs=found.lines,
        decisions=decisions(connection, query, size=LATEST),
        runs=runs(connection, query, size=LATEST),
        unloaded=_unloaded(connection, query.journalled),
    )


def _unloaded(
    connection: duckdb.DuckDBPyConnection, journalled: tuple[str, ...]
) -> tuple[str, ...]:
    loaded = connection.execute(
        "SELECT run_id FROM listed WHERE list_contains($names, run_id)", {"names": list(journalled)}
    ).fetchall()
    return tuple(sorted({*journalled} - {name for (name,) in loaded}, reverse=True))


def _charted(connection: duckdb.DuckDBPyConnection, held: list[Raised]) -> list[Raised]:
    """Add charts to the first few alarms."""
    shown = [each for each in held if each.alarm.metric is not None][:DRAWN]
    wanted = {(each.job, each.alarm.metric) for each in shown}
    charts: dict[tuple[str, str | None], Plot] = {}
    for job in dict.fromkeys(each.job for each in shown):
        for series in trends_of(connection, job, tuple(held)).series:
            if (job, series.name) in wanted:
                charts[job, series.name] = trend(series, job=job).chart
    return [replace(each, chart=charts.get((each.job, each.alarm.metric))) for each in held]


def _listed(lines: tuple[T, ...], rows: Sequence[tuple[int, ...]], size: int) -> ListPage[T]:
    """Return a page of rows that end in their position and the total."""
    first, total = rows[0][-2:] if rows else (0, 0)
    return ListPage(lines=lines, total=total, first=first, size=size)
