"""Divide a plan before it is played, so that dispatchers need no messages while load runs.

Each node then plays its share with a dispatcher of its own. Sessions that spawn, await or quote
each other stay together, as a family; families are dealt out in their order, like cards. So each
node starts as many sessions of a closed loop as its share of the loop, and has about the same
load at any time. What is counted over all sessions (`--sessions`, caps, budgets) is divided too.
An open loop's starts depend on nothing that happens: they are drawn as one dispatcher would draw
them, and dealt out with the sessions.

The price: a node whose sessions are over cannot take another node's,
and a cap that is full on one node is not eased by a free slot on another.
"""

from collections.abc import Sequence
from dataclasses import replace

from agentload.dispatch.arrivals import SECOND, rng_of, starts
from agentload.dispatch.foresight import foresight
from agentload.errors import PlanError
from agentload.layout.blocks import dependency_groups
from agentload.model.plan import Block, ClosedLoop, Load, OpenLoop, Plan, Recorded
from agentload.model.trace import Session


def check(plan: Plan, shares: int) -> None:
    """Raise PlanError where a plan has too little to be divided over *shares* dispatchers."""
    for block in plan.blocks:
        _dealt(plan, block, shares)
    _part(plan.load, 0, shares)


def divide(plan: Plan, shares: int) -> tuple[Plan, ...]:
    """Return the share of each of *shares* dispatchers; their blocks start at one instant.

    Raises PlanError where there is too little to divide.
    """
    blocks = [_dealt(plan, block, shares) for block in plan.blocks]
    made = [
        replace(
            plan,
            load=_part(plan.load, number, shares),
            blocks=tuple(each[number] for each in blocks),
        )
        for number in range(shares)
    ]
    played = {play.block for round_ in plan.rounds for play in round_.plays}
    leads = {
        block.index: max(foresight(share, share.blocks[place]).lead_ns for share in made)
        for place, block in enumerate(plan.blocks)
        if block.index in played
    }
    return tuple(
        replace(
            share,
            blocks=tuple(replace(each, lead_ns=leads.get(each.index)) for each in share.blocks),
        )
        for share in made
    )


def _dealt(plan: Plan, block: Block, shares: int) -> tuple[Block, ...]:
    kept = _started(plan, block)
    groups = dependency_groups(kept)
    if len(groups) < shares:
        raise PlanError(
            f"block {block.index} cannot be divided over {shares} nodes: its sessions are "
            f"{_families(groups)}",
            hint=_fewer(len(groups)),
        )
    own = {
        session.session: place % shares for place, group in enumerate(groups) for session in group
    }
    return tuple(
        replace(block, sessions=tuple(each for each in kept if own[each.session] == number))
        for number in range(shares)
    )


def _families(groups: Sequence[Sequence[Session]]) -> str:
    """Return how many families the sessions form, with an example of a dependency.

    A session that waits for another one must be on the same node.
    """
    apart = "1 family" if len(groups) == 1 else f"{len(groups)} families"
    for group in groups:
        for session in group:
            for place, turn in enumerate(session.turns):
                if turn.after:
                    example = f"turn {place} of {session.session} is after {turn.after[0].session}"
                    return f"{apart}, because sessions wait for each other ({example})"
    return apart


def _fewer(most: int) -> str:
    if most > 1:
        return f"play from at most {most}: --nodes {most}"
    return "leave out --on"


def _started(plan: Plan, block: Block) -> tuple[Session, ...]:
    """Return a block's sessions; in an open loop, with the drawn instants of their starts."""
    drawn = starts(plan.load.arrivals, rng_of(plan.seed, "arrivals", block.index))
    if drawn is None:
        return tuple(block.sessions)
    return tuple(
        each if each.start_s is None else replace(each, start_s=next(drawn) / SECOND)
        for each in block.sessions
    )


def _part(load: Load, number: int, shares: int) -> Load:
    """Return the share of what a load counts over all sessions."""

    def part(whole: int, option: str) -> int:
        if whole < shares:
            raise PlanError(
                f"{option} {whole} cannot be divided over {shares} nodes", hint=_fewer(whole)
            )
        return whole // shares + (number < whole % shares)

    arrivals = load.arrivals
    budget = load.budget
    match arrivals:
        case ClosedLoop(sessions=sessions):
            arrivals = replace(arrivals, sessions=part(sessions, "--sessions"))
        case OpenLoop():
            arrivals = Recorded()
        case Recorded():
            pass
    return replace(
        load,
        arrivals=arrivals,
        max_in_flight=None
        if load.max_in_flight is None
        else part(load.max_in_flight, "--max-in-flight"),
        budget=replace(
            budget,
            calls=None if budget.calls is None else part(budget.calls, "--max-calls"),
            tokens=None if budget.tokens is None else part(budget.tokens, "--max-tokens"),
        ),
    )
