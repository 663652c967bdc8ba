"""What an evaluation found, cell by cell; decisions are the advisor's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.store.database import reading

_CELLS: Final = """
SELECT task, context_tokens, arm, count_if("right"), count("right"), count(*) - count("right"), avg(score)
FROM answers WHERE run_id = ? GROUP BY ALL
ORDER BY task, context_tokens, arm
"""
_ARMS: Final = """
SELECT a.arm, count_if(x."right"), count(x."right"), count(x.arm) - count(x."right"),
    count_if(r."right" AND NOT x."right"), count_if(x."right" AND NOT r."right"),
    quantile_cont((x.signals ->> 'agreement')::DOUBLE / nullif((x.signals ->> 'agreement_of')::DOUBLE, 0), 0.5),
    count_if((x.signals ->> 'garbage') IS NOT NULL), count_if((x.signals ->> 'finish_reason') = 'length')
FROM arms AS a
LEFT JOIN answers AS x USING (run_id, arm)
LEFT JOIN answers AS r ON r.run_id = x.run_id AND r.arm = (SELECT arm FROM arms WHERE run_id = $run AND position = 0)
    AND (r.task, r.item, r.context_tokens, r.repetition) = (x.task, x.item, x.context_tokens, x.repetition)
WHERE a.run_id = $run GROUP BY a.arm, a.position ORDER BY a.position
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
class Summary:
    """An evaluation at a glance."""

    run_id: str
    cells: tuple[Cell, ...]
    arms: tuple[ArmTotal, ...]


def summarise(database: Path, run_id: str) -> Summary:
    """Read what was answered."""
    with reading(database) as connection:
        cells = connection.execute(_CELLS, [run_id]).fetchall()
        arms = connection.execute(_ARMS, {"run": run_id}).fetchall()
    names = ("task", "context_tokens", "arm", "right", "answered", "failed", "score")
    totals = ("arm", "right", "answered", "failed", "lost", "won", "agreement", "garbage", "cut")
    return Summary(
        run_id=run_id,
        cells=tuple(Cell(**dict(zip(names, row, strict=True))) for row in cells),
        arms=tuple(ArmTotal(**dict(zip(totals, row, strict=True))) for row in arms),
    )
