"""What earlier legs of a run left in its journals: the pairs that need not be played again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentload.errors import PlanError
from agentload.model.plan import Plan
from agentload.model.rows import BlockRow, CallRow, LegRow, RunRow
from agentload.store import journal
from agentload.store.places import journals


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A run so far."""

    legs: int = 0
    done: frozenset[int] = frozenset()
    lost: Mapping[int, int]
    """How often a pair was begun and not finished whole."""
    run: RunRow | None = None


def past(database: Path, plan: Plan) -> Past:
    """Read the journals of a plan's run. Raises PlanError where the run is unknown or was begun with another plan."""
    paths = journals(database, plan.run)
    rows = [row for path in paths for row in journal.read(path) if isinstance(row, RunRow | LegRow | BlockRow | CallRow)]
    whole = Counter((row.pair, row.salt) for row in rows if isinstance(row, BlockRow) and row.void is None)
    done = frozenset(pair for (pair, _), count in whole.items() if count == len(plan.arms))
    begun = {(row.leg, row.pair) for row in rows if isinstance(row, CallRow | BlockRow)}
    return Past(
        legs=max((row.leg for row in rows if isinstance(row, LegRow)), default=0),
        done=done,
        lost=Counter(pair for _, pair in begun if pair not in done),
        run=next((row for row in rows if isinstance(row, RunRow)), None),
    )


def check_resumed(before: Past, plan: Plan, *, trace_hash: str, database: Path) -> None:
    """Raise PlanError unless *plan* goes on where the run stopped."""
    if before.run is None:
        raise PlanError(f"no journal of run {plan.run} beside {database}", hint=f"agentload runs list --db {database}")
    for name, then, now in (
        ("trace", before.run.trace_hash, trace_hash),
        ("design", before.run.design, plan.design),
        ("seed", before.run.seed, plan.seed),
    ):
        if then != now:
            raise PlanError(
                f"run {plan.run} began with {name} {then}, not {now}", hint=f"resume with what it began with: {before.run.command}"
            )
