"""Play something beside a run that is there: its rows join the run, its pairs are none that the run has or may be given when it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.errors import PlanError
from agentload.model.controls import is_control
from agentload.model.plan import Plan, Play, Round
from agentload.model.rows import ArmRow, BlockRow, CallRow
from agentload.store import journal
from agentload.store.places import journals

FIRST: Final = 1_000_000  # pair of what is played beside a run; its own are numbered from 0, and a resumption may add some


def taken(database: Path, run: str) -> int:
    """Count the pairs that were played beside a run, or begun: a plan that goes on with them has so many more."""
    rows = (row for row in _rows(database, run) if isinstance(row, BlockRow | CallRow))
    return max((row.pair - FIRST + 1 for row in rows if row.pair >= FIRST), default=0)


def beside(made: Plan, database: Path) -> Plan:
    """Return what is left of a plan for the run that it names, with pairs of its own. Raises PlanError where the run has other arms.

    The plan counts from the first pair that was ever played beside the run, so that the orders of its arms stay balanced.
    """
    arms = {row.arm for row in _rows(database, made.run) if isinstance(row, ArmRow) and not is_control(row.arm)}
    if missing := sorted(arms - set(made.arms)):
        raise PlanError(f"run {made.run} has an arm '{missing[0]}' and the endpoints have not", hint=f"its arms: {', '.join(sorted(arms))}")
    if unknown := sorted(set(made.arms) - arms):
        raise PlanError(f"run {made.run} has no arm '{unknown[0]}'", hint=f"its arms: {', '.join(sorted(arms)) or 'none'}")
    first = taken(database, made.run)

    def moved(play: Play) -> Play:
        return replace(play, pair=play.pair + FIRST, salt=f"{play.salt.rpartition('/')[0]}/{play.pair + FIRST}")

    left = (tuple(moved(play) for play in round_.plays if play.pair >= first) for round_ in made.rounds)
    return replace(made, rounds=tuple(Round(index=index, plays=plays) for index, plays in enumerate(filter(None, left))))


def _rows(database: Path, run: str) -> list[ArmRow | BlockRow | CallRow]:
    return [row for path in journals(database, run) for row in journal.read(path) if isinstance(row, ArmRow | BlockRow | CallRow)]
