"""Play something beside a run that is there: its rows join the run, its pairs are none that the run has or may be given when it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.errors import PlanError
from agentload.model.controls import is_control
from agentload.model.plan import Plan, Play
from agentload.model.rows import ArmRow, BlockRow, CallRow
from agentload.store import journal
from agentload.store.places import journals

FIRST: Final = 1_000_000  # pair of what is played beside a run; its own are numbered from 0, and a resumption may add some


def beside(made: Plan, database: Path) -> Plan:
    """Return a plan for the run that it names, with pairs of its own. Raises PlanError where the run has other arms."""
    rows = [row for path in journals(database, made.run) for row in journal.read(path) if isinstance(row, ArmRow | BlockRow | CallRow)]
    arms = {row.arm for row in rows if isinstance(row, ArmRow) and not is_control(row.arm)}
    if missing := sorted(arms - set(made.arms)):
        raise PlanError(f"run {made.run} has an arm '{missing[0]}' and the endpoints have not", hint=f"its arms: {', '.join(sorted(arms))}")
    if unknown := sorted(set(made.arms) - arms):
        raise PlanError(f"run {made.run} has no arm '{unknown[0]}'", hint=f"its arms: {', '.join(sorted(arms)) or 'none'}")
    first = max((row.pair + 1 for row in rows if isinstance(row, BlockRow | CallRow) and row.pair >= FIRST), default=FIRST)

    def moved(play: Play) -> Play:
        return replace(play, pair=play.pair + first, salt=f"{play.salt.rpartition('/')[0]}/{play.pair + first}")

    rounds = tuple(replace(round_, plays=tuple(moved(play) for play in round_.plays)) for round_ in made.rounds)
    return replace(made, rounds=rounds)
