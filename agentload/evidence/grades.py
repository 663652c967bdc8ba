"""What an evaluation found, cell by cell; decisions are the advisor's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from agentload.model.rows import ArmRow
from agentload.store import tables
from agentload.store.database import reading

_CELLS: Final = """
SELECT task, context_tokens, arm, count_if("right"), count("right"), count(*) - count("right"), avg(score)
FROM graded WHERE run_id = $run GROUP BY ALL
ORDER BY task, context_tokens, arm
"""
_ARMS: Final = """
SELECT a.arm, count_if(x."right"), count(x."right"), count(x.arm) - count(x."right"),
    count_if(r."right" AND NOT x."right"), count_if(x."right" AND NOT r."right"),
    quantile_cont(x.agreement, 0.5), count_if(x.is_garbage), count_if(x.finish_reason = 'length')
FROM (SELECT unnest($arms::VARCHAR[]) AS arm) AS a
LEFT JOIN graded AS x ON (x.run_id, x.arm) = ($run, a.arm)
LEFT JOIN graded AS r ON (r.run_id, r.arm, r.task, r.item, r.context_tokens, r.repetition)
    = (x.run_id, $arms[1], x.task, x.item, x.context_tokens, x.repetition)
GROUP BY a.arm ORDER BY list_position($arms, a.arm)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm's answers to one task at one length."""

    task: str
    context_tokens: int
    arm: str
    right: int
    answered: int
    failed: int
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTotal:
    """One arm's answers in all, beside those of the reference: the first arm."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One arm's scores of one task over the lengths."""

    task: str
    arm: str
    area: float
    worst_context: int
    """Where the score is lowest, measured against the reference's; against 1 for the reference itself."""
    worst: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """An evaluation at a glance."""

    run_id: str
    cells: tuple[Cell, ...]
    curves: tuple[Curve, ...]
    """Only of tasks that were asked at several lengths."""
    arms: tuple[ArmTotal, ...]


def summarise(database: Path, run_id: str) -> Summary:
    """Read what was answered."""
    with reading(database) as connection:
        order = [row.arm for row in tables.rows(connection, ArmRow, run_id=run_id)]
        cells = tables.records(connection, Cell, _CELLS, {"run": run_id})
        arms = tables.records(connection, ArmTotal, _ARMS, {"run": run_id, "arms": order})
    return Summary(run_id=run_id, cells=cells, curves=tuple(curves(cells, order)), arms=arms)


def curves(cells: Sequence[Cell], arms: Sequence[str]) -> Iterator[Curve]:
    """Yield the curve of every task and arm; the first arm is the reference."""
    scores = {(cell.task, cell.arm, cell.context_tokens): cell.score for cell in cells if cell.score is not None}
    for task, arm in dict.fromkeys((task, arm) for task in dict.fromkeys(cell.task for cell in cells) for arm in arms):
        own = {length: score for (of, by, length), score in scores.items() if (of, by) == (task, arm)}
        whole = area(own)
        if whole is None:
            continue
        theirs = {length: 1.0 if arm == arms[0] else scores.get((task, arms[0], length), 1.0) for length in own}
        kept = {length: score / theirs[length] for length, score in own.items() if theirs[length] > 0}
        worst = min(kept, key=lambda length: kept[length], default=max(own))
        yield Curve(task=task, arm=arm, area=whole, worst_context=worst, worst=kept.get(worst, 1.0))


def area(scores: Mapping[int, float]) -> float | None:
    """Return the mean height of the curve; None where there are fewer than two lengths."""
    points = sorted(scores.items())
    if len(points) < 2:
        return None
    whole = sum((long - short) * (low + high) / 2 for (short, high), (long, low) in pairwise(points))
    return whole / (points[-1][0] - points[0][0])
