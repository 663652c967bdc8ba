"""Read what an evaluation found, by cell and as paired tables of graded answers.

Decisions are the advisor's. Pairs are the same items, depths and repetitions on the reference and
on another arm.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import polars as pl

from advisor.evidence import AccuracyBucket
from agentload.dispatch.checking import CHECK, RECORDED
from agentload.evidence.view import RunView
from agentload.model.controls import control_of
from agentload.model.record import Record
from agentload.model.rows import ArmRow, ProbeRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import DEFAULT_TASKS, Ask

_CELLS: Final = """
SELECT task, context_tokens, arm, count(*) FILTER ("right"), count("right"),
    count(*) - count("right"), avg(score)
FROM graded WHERE run_id = $run AND task <> $recorded GROUP BY ALL
ORDER BY task, context_tokens, arm
"""
_ARMS: Final = """
SELECT a.arm, count(*) FILTER (x."right"), count(x."right"), count(x.arm) - count(x."right"),
    count(*) FILTER (r."right" AND NOT x."right"), count(*) FILTER (x."right" AND NOT r."right"),
    quantile_cont(x.agreement, 0.5), count(*) FILTER (x.is_garbage), count(*)
        FILTER (x.finish_reason = 'length')
FROM (SELECT unnest($arms::VARCHAR[]) AS arm) AS a
LEFT JOIN graded AS x ON (x.run_id, x.arm) = ($run, a.arm) AND x.task <> $recorded
LEFT JOIN graded AS r ON (r.run_id, r.arm, r.task, r.item, r.context_tokens, r.repetition)
    = (x.run_id, $arms[1], x.task, x.item, x.context_tokens, x.repetition)
GROUP BY a.arm ORDER BY list_position($arms, a.arm)
"""


CANARY: Final = "canary"
"""Probe that says of a decision at which lengths of its
trace a few questions were asked before anything else.
"""
IN_SEQUENCE: Final = "questions in sequence"
"""Probe that says of a run of another verb that it was asked in a sequence of planned looks."""


def came_in_sequence(view: RunView) -> bool:
    """Tell whether the looks at a run's answers were planned before any was asked."""
    study = view.study()
    is_planned = isinstance(study, Ask) and study.until_settled
    return is_planned or bool(view.probes_of(IN_SEQUENCE))


def canary(view: RunView) -> tuple[float, ...]:
    """Return the lengths that a canary was asked at, the shortest first; empty without one."""
    lengths: set[float] = set()
    for row in view.probes_of(CANARY):
        lengths.update(map(float, json.loads(row.settings)["lengths"]))
    return tuple(sorted(lengths))


class TaskScore(Record):
    """One arm's answers to one task at one length."""

    task: str
    context_tokens: int
    arm: str
    right: int
    answered: int
    failed: int
    score: float | None


class ArmTotal(Record):
    """One arm's answers in all, next to those of the reference, which is the first arm."""

    arm: str
    right: int
    answered: int
    failed: int
    """Questions that ended without an answer."""
    lost: int
    """Right on the reference, wrong here."""
    won: int
    agreement: float | None
    """Median share of an answer up to which it is the reference's; None for the reference."""
    garbage: int
    cut: int
    """Answers that ended at their cap."""


class Curve(Record):
    """One arm's scores of one task over the lengths."""

    task: str
    arm: str
    area: float
    worst_context: int
    """Where the score is lowest, measured against the
    reference's; against 1 for the reference itself.
    """
    worst: float


class Evaluation(Record):
    """An evaluation at a glance."""

    run_id: str
    cells: tuple[TaskScore, ...]
    curves: tuple[Curve, ...]
    """Only of tasks that were asked at several lengths."""
    arms: tuple[ArmTotal, ...]


def summarise(database: Path, run_id: str) -> Evaluation:
    """Read what was answered."""
    with reading(database) as connection:
        order = [row.arm for row in tables.rows(connection, ArmRow, run_id=run_id)]
        cells = tables.records(connection, TaskScore, _CELLS, {"run": run_id, "recorded": RECORDED})
        arms = tables.records(
            connection, ArmTotal, _ARMS, {"run": run_id, "arms": order, "recorded": RECORDED}
        )
    return Evaluation(run_id=run_id, cells=cells, curves=tuple(curves(cells, order)), arms=arms)


def curves(cells: Sequence[TaskScore], arms: Sequence[str]) -> Iterator[Curve]:
    """Yield the curve of every task and arm; the first arm is the reference."""
    scores = {
        (cell.task, cell.arm, cell.context_tokens): cell.score
        for cell in cells
        if cell.score is not None
    }
    for task, arm in product(dict.fromkeys(cell.task for cell in cells), dict.fromkeys(arms)):
        own = _over_lengths(scores, task, arm)
        theirs = {} if arm == arms[0] else _over_lengths(scores, task, arms[0])
        whole = area(own)
        if whole is None:
            continue
        kept = {
            length: score / theirs.get(length, 1.0)
            for length, score in own.items()
            if theirs.get(length, 1.0) > 0
        }
        worst = min(kept, key=lambda length: kept[length], default=max(own))
        yield Curve(task=task, arm=arm, area=whole, worst_context=worst, worst=kept.get(worst, 1.0))


def _over_lengths(
    scores: Mapping[tuple[str, str, int], float], task: str, arm: str
) -> dict[int, float]:
    return {length: score for (of, by, length), score in scores.items() if (of, by) == (task, arm)}


def area(scores: Mapping[int, float]) -> float | None:
    """Return the mean height of the curve; None where there are fewer than two lengths."""
    points = sorted(scores.items())
    if len(points) < 2:
        return None
    whole = sum(
        (long - short) * (low + high) / 2 for (short, high), (long, low) in pairwise(points)
    )
    return whole / (points[-1][0] - points[0][0])


class QuestionOptions(Record):
    """State the options that most questions of a run were made with."""

    seed: int
    per_context: int
    depths: int | None
    """None where the answers do not tell."""
    repetitions: int = 1
    """How often an item was asked at most."""
    tasks: tuple[str, ...]
    """After a canary, which asks some alone, those of a decision too."""
    by_length: Mapping[int, int]
    """Questions that all arms have answered, by the tokens of their contexts."""


class _CatalogQuestion(Record):
    """One question of the catalog, with the options that its item's name tells."""

    task: str
    context_tokens: int
    repetition: int
    seed: int
    per_context: int
    depths: int | None


_NAME: Final = re.compile(r"s(?P<seed>\d+)(-x(?P<per_context>\d+)|-d(?P<place>\d+))?-\d+")
"""Name of an item of the catalog (`run/questions.py` gives it)."""
_ANSWERED_BY_ALL: Final = """
SELECT task, context_tokens, item, depth, repetition FROM graded
WHERE run_id = $run AND arm IN (SELECT unnest($arms::VARCHAR[])) AND "right" IS NOT NULL
GROUP BY ALL HAVING count(DISTINCT arm) = len($arms) ORDER BY ALL
"""


def question_options(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Sequence[str]
) -> QuestionOptions | None:
    """Return the options of most questions that all *arms* answered.

    None where no question of the catalog was answered.
    """
    by_name = defaultdict[tuple[int, int], list[_CatalogQuestion]](list)
    for each in _answered_by_all(connection, run_id, arms):
        by_name[each.seed, each.per_context].append(each)
    if not by_name:
        return None
    (seed, per_context), questions = max(by_name.items(), key=lambda each: len(each[1]))
    known = Counter(each.depths for each in questions if each.depths is not None)
    depths = max(known, key=lambda each: known[each], default=None)
    tasks = [each.task for each in questions]
    if any(tables.rows(connection, ProbeRow, run_id=run_id, probe=CANARY)):
        tasks = [*DEFAULT_TASKS, *tasks]
    return QuestionOptions(
        seed=seed,
        per_context=per_context,
        depths=depths,
        repetitions=1 + max(each.repetition for each in questions),
        tasks=tuple(dict.fromkeys(tasks)),
        by_length=Counter(
            each.context_tokens for each in questions if each.depths in (None, depths)
        ),
    )


def _answered_by_all(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Sequence[str]
) -> Iterator[_CatalogQuestion]:
    """Yield the questions of the catalog that every arm has answered."""
    answered = connection.execute(_ANSWERED_BY_ALL, {"run": run_id, "arms": list(arms)})
    for task, tokens, item, depth, repetition in answered.fetchall():
        name = _NAME.fullmatch(item)
        if name is not None:
            yield _CatalogQuestion(
                task=task,
                context_tokens=tokens,
                repetition=repetition,
                seed=int(name["seed"]),
                per_context=int(name["per_context"] or 1),
                depths=_depths(name["place"], depth),
            )


def _depths(place: str | None, depth: float | None) -> int | None:
    """Return at how many places a task was asked, by the number of one of them.

    The only place of one is in the middle; the first of several, at 0, tells nothing.
    """
    if not place or not depth:
        return None
    if not int(place):
        return 1
    return round(int(place) / depth) + 1


def questions_asked(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[int, int]:
    """Return the tokens of all contexts that a run's questions share, and how many questions."""
    found = connection.execute(
        "SELECT coalesce(sum(tokens), 0)::BIGINT, coalesce(sum(questions), 0)::BIGINT FROM ("
        "SELECT any_value(context_tokens) AS tokens, "
        "count(DISTINCT coalesce(depth, -1)) AS questions FROM graded "
        "WHERE run_id = ? GROUP BY task, context_tokens, item, repetition)",
        [run_id],
    ).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


_KEY = ("task", "context_tokens", "item", "depth", "repetition")


def graded_answers(connection: duckdb.DuckDBPyConnection, run_id: str) -> pl.DataFrame:
    """Read the answers of a run that are right or wrong."""
    found: pl.DataFrame = connection.sql(
        """
        SELECT arm, task, context_tokens, item, depth, repetition, score, "right",
            is_garbage AS garbage FROM graded
        WHERE run_id = $run AND "right" IS NOT NULL
        """,
        params={"run": run_id},
    ).pl()
    return found


def accuracy(
    answers: pl.DataFrame, arms: Sequence[str], reference: str
) -> tuple[tuple[AccuracyBucket, ...], tuple[AccuracyBucket, ...]]:
    """Return one bucket for each arm, task and length, over the items both sides answered.

    First those of the arms against the reference, then
    those of arms that were asked twice against themselves.
    """
    by_arm = _by_arm(answers.filter(pl.col("task") != RECORDED))
    challenging = (
        _buckets(arm, by_arm.get(reference), by_arm.get(arm)) for arm in arms if arm != reference
    )
    controlling = (_buckets(arm, by_arm.get(arm), by_arm.get(control_of(arm))) for arm in arms)
    return tuple(chain.from_iterable(challenging)), tuple(chain.from_iterable(controlling))


def without_unread_checks(buckets: Sequence[AccuracyBucket]) -> tuple[AccuracyBucket, ...]:
    """Leave out a trace's checks of which no arm has any right.

    Emulated servers see no images, so that checks of what these show are no accuracy of theirs.
    """
    right: dict[str, int] = defaultdict(int)
    for each in buckets:
        right[each.task] += each.both + each.reference_only + each.arm_only
    return tuple(each for each in buckets if not each.task.startswith(CHECK) or right[each.task])


def recorded_replies(
    answers: pl.DataFrame, arms: Sequence[str], reference: str
) -> tuple[AccuracyBucket, ...]:
    """Return one bucket for each arm: its replies and the reference's, each graded.

    Both are graded by the recorded reply; sessions are the clusters.
    """
    by_arm = {
        arm: rows.with_columns(
            longest=pl.col("context_tokens").max(),
            session=pl.col("item").str.replace(r"\[\d+\]$", ""),
        )
        for arm, rows in _by_arm(answers.filter(pl.col("task") == RECORDED)).items()
    }
    pairs = (
        (arm, by_arm[reference], by_arm[arm])
        for arm in arms
        if arm != reference and {arm, reference} <= by_arm.keys()
    )
    found = (
        (arm, first.join(second, on=_KEY, how="inner", nulls_equal=True, suffix="_arm").sort(_KEY))
        for arm, first, second in pairs
    )
    return tuple(
        _bucket(arm, RECORDED, float(rows["longest"][0]), rows, clusters="session")
        for arm, rows in found
        if rows.height
    )


def _by_arm(answers: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    return {str(arm): rows for (arm,), rows in answers.partition_by("arm", as_dict=True).items()}


def _buckets(
    arm: str, first: pl.DataFrame | None, second: pl.DataFrame | None
) -> Iterator[AccuracyBucket]:
    if first is None or second is None:
        return
    paired = first.join(second, on=_KEY, how="inner", nulls_equal=True, suffix="_arm").sort(_KEY)
    for (task, tokens), rows in paired.group_by("task", "context_tokens", maintain_order=True):
        yield _bucket(arm, str(task), float(str(tokens)), rows)


def _bucket(
    arm: str, task: str, context_tokens: float, rows: pl.DataFrame, *, clusters: str = "item"
) -> AccuracyBucket:
    reference_right = rows["right"].to_numpy()
    arm_right = rows["right_arm"].to_numpy()
    graded = not rows["score"].has_nulls() and not rows["score_arm"].has_nulls()
    return AccuracyBucket(
        arm=arm,
        task=task,
        context_tokens=context_tokens,
        both=int(np.sum(reference_right & arm_right)),
        reference_only=int(np.sum(reference_right & ~arm_right)),
        arm_only=int(np.sum(~reference_right & arm_right)),
        neither=int(np.sum(~reference_right & ~arm_right)),
        reference_scores=rows["score"].to_numpy() if graded else None,
        arm_scores=rows["score_arm"].to_numpy() if graded else None,
        garbage=_count(rows["garbage_arm"]),
        reference_garbage=_count(rows["garbage"]),
        # Repetitions and depths of one item share its text.
        clusters=rows[clusters].rank("dense").cast(pl.Int64).to_numpy(),
        depths=rows["depth"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        if graded
        else None,
    )


def _count(flags: pl.Series) -> int | None:
    """Count what was noticed; None where nobody looked."""
    if flags.has_nulls():
        return None
    return int(flags.sum())
