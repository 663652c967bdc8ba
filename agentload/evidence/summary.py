"""Read the few figures that show whether a run went well; decisions are the advisor's."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

from advisor.assess.tasks import WHOLE
from agentload.evidence.plays import WARM_UP, PlayedBlock, plays_table, valid_plays
from agentload.evidence.view import run_view
from agentload.model.apart import CONTEXT_SWEEP, STEP_TIMES
from agentload.model.record import Record
from agentload.store.database import reading

# An invalid play was played again: only the plays that
# count are read, with as many calls as the plan has.
COUNTED = """
WITH counted AS (
    SELECT c.* FROM turns c JOIN plays p ON (p.leg, p.arm, p.pair) = (c.leg, c.arm, c.pair)
        AND c.released_ns BETWEEN p.started_ns AND p.ended_ns
    WHERE c.run_id = $run AND NOT c.prime
)
"""
# As in `advisor.assess.figures`: the mean over blocks, from the first call to the end of the last
# one that left before the block drained. So an empty server's waits at the end are in no rate.
QUERY = """,
loaded AS (
    SELECT arm, sum(output_tokens) FILTER (status = 'ok') AS tokens,
        (max(began_ns + coalesce(turn_ms, 0) * 1e6) - min(began_ns)) / 1e9 AS seconds
    FROM counted WHERE NOT tail GROUP BY arm, leg, pair
)
SELECT a.arm,
       count(c.request_id) AS calls,
       count(*) FILTER (status = 'ok') AS ok,
       quantile_disc(ttft_ms, 0.5) FILTER (status = 'ok') AS ttft_p50_ms,
       quantile_disc(ttft_ms, 0.95) FILTER (status = 'ok') AS ttft_p95_ms,
       quantile_disc(tpot_ms, 0.5) FILTER (status = 'ok') AS token_p50_ms,
       sum(cached_tokens) FILTER (hit_rate IS NOT NULL) / sum(prompt_tokens)
           FILTER (hit_rate IS NOT NULL) AS cached_share,
       (SELECT avg(coalesce(l.tokens, 0) / l.seconds) FROM loaded l
           WHERE l.arm = a.arm AND l.seconds > 0) AS tokens_per_s
FROM (SELECT unnest($arms::VARCHAR[]) AS arm) AS a LEFT JOIN counted c ON c.arm = a.arm
GROUP BY a.arm ORDER BY list_position($arms, a.arm)
"""
STATUSES = (
    "SELECT arm, status, count(*), min(error) FROM counted WHERE status <> 'ok' GROUP BY ALL "
    "ORDER BY arm, 3 DESC"
)
# As in `advisor.assess.tasks`: a task is whole from its first turn to one that none follows.
TASKS = """,
turn_ends AS (
    SELECT c.* FROM counted c ANTI JOIN counted r ON r.retry_of = c.request_id
    WHERE c.status NOT IN ('cancelled', 'stopped') AND NOT list_contains($apart, c.workload)
),
tasks AS (
    SELECT arm, count(*) = max(turn) + 1 AND min(turns_left) = 0 AS is_whole,
        bool_and(status = 'ok') AND is_whole AS is_done, sum(turn_ms) AS task_ms
    FROM turn_ends GROUP BY arm, pair, session HAVING count(turns_left) > 0
)
SELECT arm, count(*) FILTER (is_whole), count(*) FILTER (is_done),
    avg(task_ms) FILTER (is_done)
FROM tasks GROUP BY arm HAVING avg(is_whole::INT) >= $whole
"""


class ArmSummary(Record):
    """One arm's figures; None where nothing was observed."""

    arm: str
    calls: int
    ok: int
    failed: dict[str, int]
    """Calls by how they ended."""
    errors: dict[str, str]
    """An example of what servers said, by how the call ended."""
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    token_p50_ms: float | None
    output_tokens_per_s: float | None
    cached_share: float | None
    left_out: dict[str, int]
    """Plays that do not count, and are in none of the figures, by the reason."""
    tasks: int | None = None
    """Sessions played from end to end; None where too many were cut."""
    tasks_done: int | None = None
    """Of these, with every turn ended cleanly."""
    task_ms: float | None = None
    """Mean latency of these: the sum of a task's turn latencies, waits left out."""

    def failures(self) -> Iterator[str]:
        """Yield how many calls ended in each way that is not ok, with an example of the error."""
        for status, count in self.failed.items():
            said = self.errors.get(status)
            yield f"{self.arm}: {count} {status}" + (f", such as: {said}" if said else "")


class RunFigures(Record):
    """A run at a glance."""

    run_id: str
    arms: tuple[ArmSummary, ...]

    def text(self, *, invalid: str | None = None) -> str:
        """Return a table for people; *invalid* says why its timings are, where they are."""
        head = (
            f"{'arm':<16}{'calls':>8}{'ok':>8}{'TTFT p50':>12}{'p95':>12}"
            f"{'TPOT p50':>12}{'tokens/s':>10}{'cached':>8}"
        )
        marked = [f"✗ these timings are invalid: {invalid}"] if invalid else []
        lines = [f"run {self.run_id}", *marked, head, *map(_line, self.arms)]
        lines += [line for arm in self.arms for line in arm.failures()]
        lines += [
            f"{arm.arm}: not counted: {count} plays, {reason}"
            for arm in self.arms
            for reason, count in arm.left_out.items()
        ]
        lines += [_task_line(arm) for arm in self.arms if arm.tasks is not None]
        return "\n".join(lines)


def summarise(database: Path, run_id: str) -> RunFigures:
    """Read the figures of a run."""
    with reading(database) as connection:
        return figures(connection, run_id)


def figures(connection: duckdb.DuckDBPyConnection, run_id: str) -> RunFigures:
    """Read the figures of a run of a database that is open."""
    view = run_view(connection, run_id)
    arms = [row.arm for row in view.arms]
    with plays_table(connection, valid_plays(view.plays)):
        rows = connection.execute(COUNTED + QUERY, {"run": run_id, "arms": arms}).fetchall()
        failed = connection.execute(COUNTED + STATUSES, {"run": run_id}).fetchall()
        whole = {"run": run_id, "whole": WHOLE, "apart": [CONTEXT_SWEEP, STEP_TIMES]}
        tasks = {arm: own for arm, *own in connection.execute(COUNTED + TASKS, whole).fetchall()}
    found = []
    for arm, calls, ok, p50, p95, token, cached, rate in rows:
        whole_tasks, done, task_ms = tasks.get(arm, (None, None, None))
        own = [(status, count, error) for name, status, count, error in failed if name == arm]
        summary_of_arm = ArmSummary(
            arm=arm,
            calls=calls,
            ok=ok,
            failed={status: count for status, count, _ in own},
            errors={status: error for status, _, error in own if error},
            ttft_p50_ms=p50,
            ttft_p95_ms=p95,
            token_p50_ms=token,
            output_tokens_per_s=rate or None,
            cached_share=cached,
            left_out=_left_out(view.plays, arm),
            tasks=whole_tasks,
            tasks_done=done,
            task_ms=task_ms,
        )
        found.append(summary_of_arm)
    return RunFigures(run_id=run_id, arms=tuple(found))


def _left_out(plays: Sequence[PlayedBlock], arm: str) -> dict[str, int]:
    """Count the plays of an arm that do not count, by the reason; warm-ups are left out."""
    reasons = (play.left_out for play in plays if play.arm == arm)
    return dict(Counter(each for each in reasons if each is not None and each != WARM_UP))


def _task_line(arm: ArmSummary) -> str:
    each = "" if arm.task_ms is None else f", {arm.task_ms / 1e3:,.1f} s each (waits left out)"
    return f"{arm.arm}: {arm.tasks_done} of {arm.tasks} tasks done{each}"


def _line(arm: ArmSummary) -> str:
    def ms(value: float | None) -> str:
        if value is None:
            return "–"
        return f"{value:,.1f} ms"

    rate = "–" if arm.output_tokens_per_s is None else f"{arm.output_tokens_per_s:,.0f}"
    cached = "–" if arm.cached_share is None else f"{arm.cached_share:.0%}"
    times = "".join(
        f"{ms(value):>12}" for value in (arm.ttft_p50_ms, arm.ttft_p95_ms, arm.token_p50_ms)
    )
    return f"{arm.arm:<16}{arm.calls:>8,}{arm.ok:>8,}{times}{rate:>10}{cached:>8}"
