"""Lay a plan out for servers that cannot run side by side: each arm's server is started for some pairs, played, and ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agentload.errors import PlanError
from agentload.model.plan import Plan, Play, Round
from agentload.replay.stretches import stretches

FEW: Final = 3  # starts an arm; below this nobody can tell what a start changes from what the arm does


def with_starts(made: Plan, restarts: int | None = None) -> Plan:
    """Return an interleaved plan with its pairs divided over *restarts* starts of each arm's server; None: a start for each pair.

    All pairs of a start are played on one arm before the next arm's server is started, in the order that was drawn for the pairs: a start
    is a random factor that pairs share, and drift still cancels.
    """
    if made.design != "interleaved" or any(play.warmup for round_ in made.rounds for play in round_.plays):
        raise PlanError(
            "servers that are started in turn are played interleaved and without a warm-up block", hint="each start is primed: see --launch"
        )
    if len(stretches(made.rounds)) > 1:
        raise PlanError("--swap needs servers that run all the time, on two machines", hint="leave out --launch, or --swap")
    plays: dict[int, dict[str, Play]] = {}
    for round_ in made.rounds:
        for play in round_.plays:
            plays.setdefault(play.pair, {})[play.arm] = play
    pairs = list(plays)
    starts = len(pairs) if restarts is None else restarts
    if not 1 <= starts <= len(pairs):
        raise PlanError(f"{len(pairs)} pairs cannot be divided over {starts} starts", hint=f"--restarts 1 to {len(pairs)}, or more --pairs")
    rounds: list[Round] = []
    for number in range(starts):
        shared = [pair for position, pair in enumerate(pairs) if position * starts // len(pairs) == number]
        for place, arm in enumerate(plays[pairs[number]]):
            rounds += [
                Round(index=len(rounds) + position, plays=(plays[pair][arm],), start=number * len(made.arms) + place)
                for position, pair in enumerate(shared)
            ]
    return replace(made, rounds=tuple(rounds))


def starts_of(made: Plan) -> int:
    """Count the starts of servers in a plan; 0: they run all the time."""
    return len({round_.start for round_ in made.rounds} - {None})
