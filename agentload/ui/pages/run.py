"""One run: its decision, calls, blocks and conditions."""

from collections.abc import Iterator
from typing import Final

import duckdb
import msgspec

from agentload import documents
from agentload.errors import StoreError
from agentload.evidence.summary import ArmSummary, figures
from agentload.model.metrics import NOT_OUTCOMES
from agentload.model.record import Record
from agentload.model.rows import ExecutionRow, VerdictRow
from agentload.report import labels
from agentload.report.charts.spec import Chart, ChartAxis, Plot, Series
from agentload.report.labels import SLOTS
from agentload.report.parts import Answer, Step, Tone
from agentload.store import tables
from agentload.store.runs import BlockLine, RunSummary, find_run, summary
from agentload.ui.pages import records
from agentload.ui.pages.listed import TONES
from agentload.ui.source import NotFoundError, Query

_TIMINGS: Final = """
SELECT workload, arm, count(*) AS calls, count_if(status = 'ok') AS ok,
    quantile_disc(ttft_ms, [0.5, 0.95]) FILTER (status = 'ok') AS ttft_ms,
    quantile_disc(turn_ms, [0.5, 0.95]) FILTER (status = 'ok') AS turn_ms,
    quantile_disc(tpot_ms, [0.5, 0.95]) FILTER (status = 'ok') AS token_ms,
    sum(cached_tokens) FILTER (hit_rate IS NOT NULL) / sum(prompt_tokens)
        FILTER (hit_rate IS NOT NULL) AS cached_share
FROM turns WHERE run_id = $run AND NOT prime GROUP BY workload, arm ORDER BY workload,
    list_position($arms, arm)
"""

_FAILURES: Final = """
SELECT arm, status, count(*) AS count, any_value(error) AS error FROM attempts
WHERE run_id = $run AND status NOT IN ('ok', 'not_sent')
    AND NOT list_contains($planned, status) GROUP BY arm, status
    ORDER BY count(*) DESC
"""

_ANSWERS: Final = """
SELECT task, arm, count(*) FILTER ("right") AS "right", count("right") AS graded, count(*) AS asked
FROM graded WHERE run_id = $run GROUP BY task, arm ORDER BY task, arm
"""


class CallTimes(Record):
    """One workload on one arm; p50 and p95 of its successful calls, in ms."""

    workload: str
    arm: str
    calls: int
    ok: int
    ttft_ms: tuple[float, ...] | None
    turn_ms: tuple[float, ...] | None
    token_ms: tuple[float, ...] | None
    cached_share: float | None

    @property
    def ok_share(self) -> float:
        """Return which share of the calls ended well."""
        return self.ok / self.calls


class FailedCalls(Record):
    """Failed calls of one arm with one status."""

    arm: str
    status: str
    count: int
    error: str | None


class Right(Record):
    """Answers of one arm to one task."""

    task: str
    arm: str
    right: int
    graded: int
    asked: int

    @property
    def share(self) -> float | None:
        """Return which share of the graded answers is right; None where none is graded."""
        return self.right / self.graded if self.graded else None


class StoredFinding(msgspec.Struct, frozen=True):
    """What one rule concluded, and about which arm and workload."""

    message: str
    rule: str = ""
    kind: str = ""
    arm: str | None = None
    workload: str | None = None


class StoredVerdict(Record):
    """The latest stored decision."""

    at_ns: int
    policy: str
    version: str | None
    """Of the agentload that decided."""
    headline: str
    tone: Tone
    why: str
    do_now: tuple[Step, ...]
    """What to do next, with the commands that do it."""
    answers: tuple[Answer, ...]
    findings: tuple[StoredFinding, ...] = ()


class RunPage(Record):
    """The data of the page."""

    summary: RunSummary
    slots: dict[str, int]
    verdict: StoredVerdict | None
    timings: tuple[CallTimes, ...]
    failures: tuple[FailedCalls, ...]
    answers: tuple[Right, ...]
    tasks: tuple[ArmSummary, ...]
    """Of each arm whose sessions were played from end to end."""
    charts: tuple[Chart, ...]
    job: str | None
    pairs: tuple[int, ...]
    """Those that count, or all of them where none does."""

    @property
    def is_invalid(self) -> bool:
        """Tell whether each part of the run says that nothing of it counts."""
        found = [each.health or {} for each in self.summary.legs]
        return bool(found) and all(each.get("void") for each in found)

    @property
    def invalid_blocks(self) -> int:
        """Count the blocks whose calls are shown and do not count."""
        return sum(each.void is not None for each in self.summary.blocks)

    @property
    def failed(self) -> int:
        """Count the calls that ended otherwise than they should."""
        return sum(each.count for each in self.failures)


class _Choice(msgspec.Struct):
    verdict: str = ""


class _Decision(msgspec.Struct):
    choice: _Choice = msgspec.field(default_factory=_Choice)
    findings: tuple[StoredFinding, ...] = ()


class _Stored(msgspec.Struct):
    """The fields of a decision file that this page needs; others may be of another version."""

    headline: str
    why: str = ""
    do_now: tuple[Step, ...] = ()
    answers: tuple[Answer, ...] = ()
    decision: _Decision = msgspec.field(default_factory=_Decision)


def run_named(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return the run of that name, or the only one with that prefix.

    Raise `NotFoundError` otherwise.
    """
    try:
        return find_run(connection, name).run_id
    except StoreError as error:
        job = _job(connection, name)
        kept = (
            f"job {job} no longer keeps the calls of this run; see the job's page for its result"
            if job
            else None
        )
        raise NotFoundError(error.message, hint=kept or error.hint) from error


def run(connection: duckdb.DuckDBPyConnection, query: Query) -> RunPage:
    """Read a run by its name or a prefix of it; raise `NotFoundError` if there is none."""
    name = run_named(connection, query.name)
    overview = summary(connection, name)
    arms = [each.arm for each in overview.arms]
    sound = sorted(
        {each.pair for each in overview.blocks}
        - {each.pair for each in overview.blocks if each.void or each.warmup}
    )
    return RunPage(
        summary=overview,
        slots={arm: position % SLOTS for position, arm in enumerate(arms)},
        verdict=_verdict(connection, name),
        timings=records(connection, CallTimes, _TIMINGS, run=name, arms=arms),
        failures=records(
            connection, FailedCalls, _FAILURES, run=name, planned=sorted(NOT_OUTCOMES)
        ),
        answers=records(connection, Right, _ANSWERS, run=name),
        tasks=tuple(each for each in figures(connection, name).arms if each.tasks is not None),
        charts=tuple(_charts(overview)),
        job=_job(connection, name),
        pairs=tuple(sound or sorted({each.pair for each in overview.blocks})),
    )


def _job(connection: duckdb.DuckDBPyConnection, run: str) -> str | None:
    return max((row.job for row in tables.rows(connection, ExecutionRow, run_id=run)), default=None)


def _verdict(connection: duckdb.DuckDBPyConnection, run: str) -> StoredVerdict | None:
    kept = tables.rows(connection, VerdictRow, run_id=run)
    if not kept:
        return None
    return verdict_of(kept[-1])


def verdict_of(kept: VerdictRow) -> StoredVerdict | None:
    """Return what a stored decision says.

    None where another version stored it in another form: the report is then made again from the
    calls.
    """
    try:
        stored = msgspec.json.decode(kept.decision, type=_Stored)
    except documents.UNREADABLE:
        return None
    tone = TONES.get(stored.decision.choice.verdict, "plain")
    return StoredVerdict(
        at_ns=kept.at_ns,
        policy=kept.policy,
        version=kept.version,
        headline=stored.headline,
        tone=tone,
        why=stored.why,
        do_now=stored.do_now,
        answers=stored.answers,
        findings=stored.decision.findings,
    )


def _charts(found: RunSummary) -> Iterator[Chart]:
    blocks = [
        each for each in found.blocks if each.output_tokens_per_s is not None and each.void is None
    ]
    if len({each.round for each in blocks}) < 2:
        return
    yield Plot(
        name="throughput",
        title="Output tokens per second, block by block",
        caption=(
            "One mark for each block and arm, in the order they were played; drain tails "
            "and invalid blocks are excluded."
        ),
        x=ChartAxis(label="round", quantity="count", whole=True),
        y=ChartAxis(label="tokens/s", quantity="tokens/s"),
        series=tuple(_rates(slot, arm.arm, blocks) for slot, arm in enumerate(found.arms)),
    )


def _rates(slot: int, arm: str, blocks: list[BlockLine]) -> Series:
    name = labels.arm(arm)
    points = []
    for each in blocks:
        if each.arm == arm:
            rate = each.output_tokens_per_s or 0.0
            tip = f"{name}, pair {each.pair}: {rate:,.0f} tokens/s over {each.calls} calls"
            points.append((each.round + 1, rate, tip))
    return Series.of(name, slot % SLOTS, "points", points)
