"""What a model's database and journals have of the matrix already."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from agentload.evidence.plays import plays
from agentload.model.controls import is_control
from agentload.model.rows import AnswerRow, ArmRow, BlockRow, LegRow, RunRow
from agentload.run.past import FIRST as BESIDE
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.loader import load
from agentload.store.places import journalled_runs, journals


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The run of a model, and the arms that it began with."""

    run: str
    arms: tuple[str, ...]


def begun(database: Path) -> Begun | None:
    """Return the run of a model; None before the first of its rows is written."""
    for run in journalled_runs(database):
        for path in journals(database, run):
            # Every leg opens with what it is; its calls may be a gigabyte.
            rows = list(takewhile(lambda row: isinstance(row, LegRow | RunRow | ArmRow), journal.read(path)))
            if any(isinstance(row, RunRow) for row in rows):
                arms = sorted((row for row in rows if isinstance(row, ArmRow)), key=lambda row: row.position)
                return Begun(run=run, arms=tuple(row.arm for row in arms if not is_control(row.arm)))
    return None


def is_ready(database: Path, run: str) -> bool:
    """Tell whether a run can be joined; a database that is missing is made of its journals as soon as a block of them counts."""
    if not database.exists():
        found = journals(database, run)
        if any(isinstance(row, BlockRow) and row.void is None for path in found for row in journal.read(path)):
            load(found, database)
    return database.exists()


def swept(database: Path, before: Begun) -> int:
    """Count the pairs of sweeps of lengths that a run has on all of its arms."""
    found = defaultdict(set)
    with reading(database) as connection:
        for play in plays(connection, before.run):
            if play.pair >= BESIDE and play.left_out is None:
                found[play.pair].add(play.arm)
    return sum(arms >= set(before.arms) for arms in found.values())


def is_answered(database: Path, run: str) -> bool:
    """Tell whether a question of a run was answered."""
    return any(isinstance(row, AnswerRow) and row.right is not None for path in journals(database, run) for row in journal.read(path))
