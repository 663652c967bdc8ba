"""Is the arm faster? Turn time against the smallest change that counts, the noise floor and the machines."""

from __future__ import annotations

import math
from dataclasses import replace

from advisor import words
from advisor.case import Case, Speed
from advisor.legs.tested import Tested
from advisor.statistics.paired import MIN_PAIRS
from advisor.statistics.planning import units_needed
from advisor.statistics.resampling import Spread
from advisor.steps import Again, MorePairs, Restarts, Swap
from advisor.verdict import Leg, LegState, Need

FEWEST = 6  # pairs, three a half: with fewer, the machine cannot be taken out of the difference


def confounded(case: Case, arm: str) -> bool:
    """Say whether *arm* and the reference ran on different machines and never changed places."""
    deployment = case.evidence.deployment
    mine, theirs = (each.machine for each in case.evidence.both(arm))
    return len(deployment.machines) > 1 and not deployment.swapped and (mine is None or theirs is None or mine != theirs)


def allowance(case: Case, arm: str) -> float:
    """Return the relative change that a difference between machines may explain; a control across machines puts it into the noise floor."""
    if not confounded(case, arm) or any(control.across_machines for control in case.evidence.aa):
        return 0.0
    return case.policy.machine_spread


def swap(pairs: int) -> Swap:
    """Return a replay of at least so many pairs in which the arms change machines half way."""
    return Swap(pairs=max(FEWEST, pairs + pairs % 2))


def more_pairs(case: Case, speed: Speed) -> Need:
    """Return what settles *speed* against the smallest change that counts: pairs for the arm, and for its control where that is wider."""
    have = speed.spread.units
    units = max(_units(case, each) for each in (speed.spread, speed.control) if each is not None)
    # Enough for nine truths of ten, and still open: it lies at the margin itself, where only a narrower interval can tell.
    more = units - have if units > have else have
    where = words.scope(speed.change.workload)
    if speed.spread.unit_name == "restarts":
        what = f"restarts of both servers ({where} on {speed.change.arm})"
        return Need(what=what, pairs=more, step=Restarts(restarts=have + more))
    return Need(
        what=f"paired calls of {where} on {speed.change.arm}",
        calls=math.ceil(more * speed.calls_per_pair),
        pairs=more,
        minutes=more * speed.minutes_per_pair,
        step=MorePairs(pairs=have + more),
    )


def _units(case: Case, spread: Spread) -> int:
    return units_needed(spread.se * math.sqrt(spread.units), math.log1p(case.policy.min_change))


def cannot_rule_out(control: Spread, floor: float) -> str:
    """Say what a noise floor is: not what was seen, but what so small a control leaves possible."""
    return f"the A/A control of {control.units} {control.unit_name.removeprefix('block ')} cannot rule out {floor:.1%} between equal sides"


def _untested(case: Case, arm: str, workload: str | None) -> Tested:
    spoiled = case.spoiled("turn", arm, workload)
    if spoiled is not None:
        reason = f"{spoiled.name}: {spoiled.message}"
        needs = (Need(what=f"a replay in which the gate '{spoiled.name}' holds", step=Again()),)
    else:
        reason = "fewer than three block pairs"
        needs = (Need(what=f"block pairs of {words.scope(workload)} on {arm}", pairs=MIN_PAIRS, step=MorePairs(pairs=MIN_PAIRS)),)
    return Tested(leg=Leg(name="pays", state="untested", margin=case.policy.min_change, reason=reason, needs=needs))


def speed_leg(case: Case, arm: str, workload: str | None) -> Tested:
    """Return whether turn time falls or rises by more than the margin, stays within it, or is not settled."""
    speed = case.speed(arm, workload)
    if speed is None:
        return _untested(case, arm, workload)
    policy, spread, relative = case.policy, speed.spread, speed.change.relative
    floor, allowed = speed.change.floor or 0.0, allowance(case, arm)
    margin = max(policy.min_change, floor, allowed)
    needs = (more_pairs(case, speed),)
    told = f"turn time {words.change(relative)}"
    # Where equal sides differ by all there is, nothing can be faster by more.
    p_for = spread.p_below(math.log1p(-margin) if margin < 1 else -math.inf)
    p_against = spread.p_above(math.log1p(margin))

    def tested(state: LegState, reason: str, settles: tuple[Need, ...] = ()) -> Tested:
        leg = Leg(name="pays", state=state, estimate=relative, margin=margin, reason=reason, needs=settles)
        return Tested(leg=leg, p_for=p_for, p_against=p_against, if_unclear=needs)

    doubt = "" if speed.control is None else cannot_rule_out(speed.control, floor)
    if floor > policy.max_floor:
        return tested("unclear", f"{told}, but {doubt}", needs)
    if p_for <= policy.alpha / 2:
        return tested("yes", told)
    if p_against <= policy.alpha / 2:
        return tested("no", told)
    if allowed:
        swapped = Need(what="arms that change machines half way", pairs=speed.change.pairs, step=swap(speed.change.pairs))
        return tested("unclear", f"{told}: cannot tell machine from arm, swap them", (swapped,))
    # A floor raises the bar for a difference, never the room for none: noise is no proof of equality.
    if relative.is_within(policy.min_change):
        equal = tested("equal", f"{told}, inside ±{policy.min_change:.1%}")
        return replace(equal, leg=replace(equal.leg, margin=policy.min_change))
    beyond = relative.is_below(-policy.min_change) or relative.is_above(policy.min_change)
    return tested("unclear", f"{told}, but {doubt}" if beyond else told, needs)
