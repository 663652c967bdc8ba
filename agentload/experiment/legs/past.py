"""What earlier legs of a run left in its journals: the pairs that need not be played again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentload.errors import PlanError
from agentload.experiment.legs.known import began_as
from agentload.experiment.legs.record import conditions
from agentload.model.plan import Plan, Play
from agentload.model.rows import ArmRow, BlockRow, CallRow, FingerprintRow, LegRow, Row, RunRow
from agentload.store import journal
from agentload.store.places import journals

KEPT: Final = (RunRow, LegRow, ArmRow, BlockRow, CallRow, FingerprintRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A run so far."""

    legs: int = 0
    done: frozenset[int] = frozenset()
    lost: Mapping[int, int]
    """How many plays of a pair that is not done may have gone out: their salts, and with them their request ids, are used up."""
    run: RunRow | None = None
    arms: tuple[str, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each arm's server said of itself last."""
    began_as: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each arm's server was when it first told so."""


def past(database: Path, plan: Plan) -> Past:
    """Read the journals of a plan's run. Raises PlanError where the run is unknown or was begun with another plan."""
    paths = journals(database, plan.run)
    # A machine that lost power leaves pages missing behind the last sync: of the pair that was being played, which is void anyway.
    rows = [row for path in paths for row in journal.read(path, damaged=lambda _: None) if isinstance(row, KEPT)]
    whole = Counter((row.pair, row.salt) for row in rows if isinstance(row, BlockRow) and row.void is None)
    done = frozenset(pair for (pair, _), count in whole.items() if count == len(plan.arms))
    return Past(
        legs=max((row.leg for row in rows if isinstance(row, LegRow)), default=0),
        done=done,
        lost={pair: count for pair, count in _played(rows).items() if pair not in done},
        run=next((row for row in rows if isinstance(row, RunRow)), None),
        arms=tuple(row.arm for row in rows if isinstance(row, ArmRow)),
        facts={row.arm: json.loads(row.facts) for row in rows if isinstance(row, FingerprintRow)},
        began_as=began_as(rows),
    )


def needless(plays: Iterable[Play], done: frozenset[int]) -> frozenset[int]:
    """Return the pairs that a leg of these plays leaves out: the done ones, but a warm-up only where it would warm up for nothing."""
    own = tuple(plays)
    if all(play.warmup or play.pair in done for play in own):
        return done
    return done - {play.pair for play in own if play.warmup}


def _played(rows: Sequence[Row]) -> Counter[int]:
    """Count each pair's plays by their salts; calls that no block row covers were a play that was killed.

    Rows of one leg may come from several journals, so only their instants tell which was first.
    """
    salts: set[tuple[int, str]] = set()
    closed_ns: dict[tuple[int, int, str], int] = {}
    for row in rows:
        if isinstance(row, BlockRow):
            salts.add((row.pair, row.salt))
            key = (row.leg, row.pair, row.arm)
            closed_ns[key] = max(closed_ns.get(key, 0), row.ended_ns or 0)
    calls = (row for row in rows if isinstance(row, CallRow))
    killed = {(row.leg, row.pair) for row in calls if row.released_ns > closed_ns.get((row.leg, row.pair, row.arm), -1)}
    return Counter([pair for pair, _ in salts] + [pair for _, pair in killed])


def blocks_of(database: Path, run_id: str) -> int | None:
    """Return into how many blocks a run cut its trace; None where there is no such run."""
    return _options(database, run_id).get("pairs")


def lasted_s(database: Path, run_id: str) -> float | None:
    """Return the seconds that a run's blocks may last; None where they end with their sessions, or there is no such run."""
    seconds: float | None = _options(database, run_id).get("load", {}).get("budget", {}).get("seconds")
    return seconds


def _options(database: Path, run_id: str) -> dict[str, Any]:
    rows = (row for path in journals(database, run_id) for row in journal.read(path, damaged=lambda _: None))
    run = next((row for row in rows if isinstance(row, RunRow)), None)
    return {} if run is None else json.loads(run.options)


def check_resumed(before: Past, plan: Plan, *, trace_hash: str, database: Path) -> None:
    """Raise PlanError unless *plan* goes on where the run stopped."""
    if before.run is None:
        raise PlanError(f"no journal of run {plan.run} beside {database}", hint=f"agentload runs list --db {database}")
    hint = f"resume with what it began with: {before.run.command}"
    for name, then, now in (
        ("trace", before.run.trace_hash, trace_hash),
        ("design", before.run.design, plan.design),
        ("seed", before.run.seed, plan.seed),
    ):
        if then != now:
            raise PlanError(f"run {plan.run} began with {name} {then}, not {now}", hint=hint)
    if before.arms != plan.arms:
        raise PlanError(f"run {plan.run} began with the arms {', '.join(before.arms)}, not {', '.join(plan.arms)}", hint=hint)
    if other := _other(json.loads(before.run.options), json.loads(json.dumps(conditions(plan)))):
        raise PlanError(f"run {plan.run} began with other {' and '.join(other)}", hint=hint)


def _other(began: dict[str, Any], goes_on: dict[str, Any]) -> list[str]:
    """Name what differs; more pairs than a run began with are the same plan, gone on with."""
    if goes_on["rounds"] > began["rounds"]:
        goes_on["rounds"] = began["rounds"]
        if "starts" in began and goes_on.get("starts", 0) > began["starts"]:
            goes_on["starts"] = began["starts"]  # which start a pair was played on is seen, not planned
        if "machines" in began:
            goes_on["machines"] = goes_on.get("machines", [])[: len(began["machines"])]
    names = [*goes_on, *({"starts", "machines"} & began.keys() - goes_on.keys())]
    return ["pairs" if name == "rounds" else name for name in names if began.get(name) != goes_on.get(name)]
