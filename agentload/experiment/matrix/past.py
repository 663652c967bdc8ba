"""What a model's database and journals have of the matrix already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.controls import is_control
from agentload.model.rows import ArmRow, RunRow
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.places import journalled_runs, journals

# A pair counts when every arm played it to its end under one salt.
_SWEPT: Final = """
SELECT count(*) FROM (
    SELECT pair, salt FROM blocks AS b WHERE run_id = $run AND void IS NULL AND ended_ns IS NOT NULL AND EXISTS (
        FROM calls_row AS c WHERE (c.run_id, c.pair, c.workload) = (b.run_id, b.pair, $sweep)
    ) GROUP BY pair, salt HAVING count(DISTINCT arm) >= $arms
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The run of a model, and the arms that it began with."""

    run: str
    arms: tuple[str, ...]


def begun(database: Path) -> Begun | None:
    """Return the run of a model; None before the first of its rows is written."""
    for run in journalled_runs(database):
        rows = [
            row
            for path in journals(database, run)
            if path.name.startswith("leg")
            for row in journal.read(path)
            if isinstance(row, RunRow | ArmRow)
        ]
        if any(isinstance(row, RunRow) for row in rows):
            arms = sorted((row for row in rows if isinstance(row, ArmRow)), key=lambda row: row.position)
            return Begun(run=run, arms=tuple(row.arm for row in arms if not is_control(row.arm)))
    return None


def swept(database: Path, run: str, arms: int) -> int:
    """Count the pairs of a sweep of lengths that a run has."""
    with reading(database) as connection:
        ((count,),) = connection.execute(_SWEPT, {"run": run, "sweep": CONTEXT_SWEEP, "arms": arms}).fetchall()
    return int(count)
