"""Decide whether an arm is faster: turn latency against the smallest change that counts.

What a start of a server and its machine add was drawn once for all pairs of that start, and is in
the interval: measured where there are enough starts, else by what the policy or the database's
history says of starts. No claim is lost to a control: a noisy one tells little.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from advisor import words
from advisor.case import Case
from advisor.estimate import Estimate
from advisor.results import SpeedComparison, Tested
from advisor.statistics.paired import MIN_PAIRS
from advisor.statistics.planning import FAMILY, LEVEL, units_needed, z_reach
from advisor.statistics.starts import ENOUGH_STARTS, SURE_PAIRS
from advisor.steps import Again, MorePairs, Replicas, Restarts, Swap
from advisor.verdict import Gate, Leg, LegState, Need

INDIFFERENT = 2  # margins: between one and two of them, staying and switching are both right
# of one server, until it answers: an 8B model from a
# warm compile cache; a plan's figure, not a measured one
START_MINUTES = 1.5
# ten days at a quarter of an hour each: what takes more is not settled by pairs like these
MOST_PAIRS = 1_000
OF_STARTS = ("one mode", "no trend")  # gates that judge starts by each other
# shares that are settled, of equal arms and of arms three margins apart (docs/statistics.md)
REPLICAS = {2: (0.7, 0.85), 4: (0.9, 0.95)}
UNJUDGED = "turn latency cannot be judged, because "
FEWEST = 6  # pairs, three a half: with fewer, the machine cannot be taken out of the difference


def is_confounded(case: Case, arm: str) -> bool:
    """Say whether *arm* and the reference ran on different machines and never changed places."""
    deployment = case.evidence.deployment
    if len(deployment.machines) <= 1 or deployment.swapped:
        return False
    mine, theirs = (each.machine for each in case.evidence.both(arm))
    return mine is None or theirs is None or mine != theirs


def swap(pairs: int) -> Swap:
    """Return a replay of an even number of pairs in which the arms change machines half way.

    It has *pairs* pairs at least.
    """
    return Swap(pairs=max(FEWEST, pairs + pairs % 2))


def more_pairs(case: Case, speed: SpeedComparison) -> Need:
    """Return what settles *speed* against the smallest change that counts.

    Pairs do where the error of the starts that they share leaves room for it, else restarts.
    """
    return _settling_pairs(case, speed) or restarts(case, speed)


def _settling_pairs(case: Case, speed: SpeedComparison) -> Need | None:
    """Return the pairs that settle *speed*; None where the starts they share leave no room."""
    # A simulation starts again, longer, which is the same look; a run is looked at once more.
    is_looked_at_again = case.evidence.kind != "simulated"
    level = _planned_level(case, speed, look=case.evidence.looks + is_looked_at_again)
    margin = math.log1p(case.policy.min_change)
    # More pairs do not shrink the error of their starts:
    # they have to settle within what it leaves of the margin.
    reach_of_starts = z_reach(level) * speed.scatter.start
    room = margin**2 - reach_of_starts**2 / speed.starts
    if room <= 0:
        return None
    units = units_needed(speed.scatter.pair, math.sqrt(room), level=level)
    if units > MOST_PAIRS:
        return None
    have = speed.change.pairs
    # Enough for nine truths of ten, and still open: it lies at the
    # margin itself, where only a narrower interval can settle it.
    more = units - have if units > have else have
    minutes = more * speed.minutes_per_pair
    return Need(
        what=f"paired calls of {words.scope(speed.workload)} on {speed.arm}",
        calls=math.ceil(more * speed.calls_per_pair),
        pairs=more,
        minutes=minutes,
        usd=case.usd(minutes),
        step=MorePairs(pairs=have + more),
    )


def _planned_level(case: Case, speed: SpeedComparison, *, look: int) -> float:
    """Return the level to plan at: that of the look that will decide.

    It is never above that of two criteria that both have to hold.
    """
    return min(LEVEL / FAMILY, case.level(speed.arm, look=look))


def restarts(case: Case, speed: SpeedComparison) -> Need:
    """Return a new run that settles *speed* with a start of both servers for every pair.

    The run shows by itself what starts add, and assumes nothing of them. Where it takes more than
    `MOST_PAIRS` pairs, the need has no count, and says what else to do.
    """
    total = math.hypot(speed.scatter.pair, speed.scatter.start)
    level = _planned_level(case, speed, look=1)
    units = units_needed(total, math.log1p(case.policy.min_change), level=level)
    pairs = max(ENOUGH_STARTS, units)
    step = Restarts(restarts=pairs)
    scope = words.scope(speed.workload)
    if pairs > MOST_PAIRS:
        what = (
            f"steadier block pairs of {scope} on "
            f"{speed.arm}; those played scatter by {total:.0%}, and "
            f"over {MOST_PAIRS:,} such pairs would be needed: play longer blocks, keep "
            "other load off the servers and this machine, or "
            "accept a larger margin (min_change)"
        )
        return Need(what=what, step=step)
    arms = len(case.evidence.arms) + bool(case.evidence.aa)
    minutes_of_starts = arms * START_MINUTES
    return Need(
        what=f"block pairs with starts of their own ({scope} on {speed.arm})",
        calls=math.ceil(pairs * speed.calls_per_pair),
        pairs=pairs,
        minutes=pairs * (speed.minutes_per_pair + minutes_of_starts),
        step=step,
    )


def more_replicas(case: Case, speed: SpeedComparison) -> Iterator[Need]:
    """Yield the need for twice as many servers of each arm, where their starts leave it open.

    Only where pairs take turns on servers that run all the time.
    """
    pairs = 2 * (speed.in_turn or 0)
    if pairs not in REPLICAS or case.evidence.kind != "measured":
        return
    if is_confounded(case, speed.arm) or speed.scatter.start == 0:
        return
    equal, faster = REPLICAS[pairs]
    arms = (case.evidence.reference, speed.arm)
    urls = ",".join(f"{arm}=URL" for arm in arms for _ in range(pairs))
    what = (
        f"{pairs} servers of each arm that run already "
        f"({words.scope(speed.workload)} on {speed.arm}), in --endpoints as "
        f"{urls}. Of drawn deployments they settled {equal:.0%} of those without a change, "
        f"and {faster:.0%} of those that change by {3 * case.policy.min_change:.0%}"
    )
    yield Need(what=what, step=Replicas(pairs=pairs))


def by_prior(case: Case, speed: SpeedComparison) -> bool:
    """Say whether a claim about *speed* rests on what is assumed of starts.

    It does with one start a side and no history of starts, or where a start that adds twice as much
    would undo it.
    """
    if speed.doubted is None:
        return False
    margin = case.policy.min_change
    claimed = claim(speed.change.relative, margin=margin)
    doubted = claim(speed.doubted, margin=margin)
    is_assumed = speed.starts == 1 and case.evidence.starts is None
    return claimed in ("yes", "no") and (is_assumed or claimed != doubted)


def claim(relative: Estimate, *, margin: float) -> LegState:
    """Return whether turn latency surely falls (yes), surely rises (no), or stays (equal).

    By more than *margin*, as its interval says; unclear where the interval leaves it open.
    """
    if relative.is_below(-margin):
        return "yes"
    if relative.is_above(margin):
        return "no"
    if abs(relative.value) < margin and relative.is_within(INDIFFERENT * margin):
        return "equal"
    return "unclear"


def _untested(case: Case, arm: str, workload: str | None) -> Tested:
    """Return the criterion without a comparison: why there is none, and what brings one."""
    spoiled = case.spoiler("turn", arm, workload)
    if spoiled is not None:
        reason = f"{UNJUDGED}a validity check failed ({spoiled.name}: {spoiled.message})"
        need = _rerun(case, spoiled, arm, workload)
    elif case.decisive == "task_ms" and case.comparison(arm, workload) is not None:
        tasks = case.task_figures(arm, workload)
        why = "" if tasks is None else tasks.unknown
        reason = f"task latency is not known: {why or 'the run does not say what ends a task'}"
        need = Need(what="whole sessions, or windows that cover the turns of a task")
    else:
        reason = "fewer than three block pairs"
        what = f"block pairs of {words.scope(workload)} on {arm}"
        need = Need(what=what, pairs=MIN_PAIRS, step=MorePairs(pairs=MIN_PAIRS))
    margin = case.policy.min_change
    leg = Leg(name="pays", state="untested", margin=margin, reason=reason, needs=(need,))
    return Tested(leg=leg)


def _unsized(speed: SpeedComparison) -> str:
    """Say whose KV pool the pairs overfilled: capacity alone shows how large the change is."""
    if not speed.change.overfull:
        return ""
    full = " and ".join(speed.change.overfull)
    return (
        f" (the contexts of the pairs do not fit the KV pool of {full}: how much "
        "is capacity's to say)"
    )


def _rerun(case: Case, gate: Gate, arm: str, workload: str | None) -> Need:
    """Return what may make a failed *gate* pass: more starts, or another run.

    More starts where the gate judged too few of them to end a comparison.
    """
    again = Need(what=f"a rerun in which the check '{gate.name}' passes", step=Again())
    if gate.name not in OF_STARTS or gate.workload is None:
        return again
    speed = case.comparison(arm, gate.workload)
    if speed is None or speed.change.pairs >= SURE_PAIRS:
        return again
    more = SURE_PAIRS - speed.change.pairs
    what = (
        f"block pairs of {words.scope(workload)} on {arm}: of few starts, the check "
        f"'{gate.name}' may be a false alarm"
    )
    return Need(
        what=what,
        pairs=more,
        minutes=more * speed.minutes_per_pair,
        step=MorePairs(pairs=SURE_PAIRS),
    )


def speed_leg(case: Case, arm: str, workload: str | None) -> Tested:
    """Return whether turn latency falls or rises by more than the margin, or stays within."""
    speed = case.speed(arm, workload, case.decisive)
    if speed is None:
        return _untested(case, arm, workload)
    relative = speed.change.relative
    margin = case.policy.min_change
    what = "task latency" if case.decisive == "task_ms" else "turn latency"
    reason = f"{what} {words.change(relative)}{_unsized(speed)}"
    if_unclear = (more_pairs(case, speed), *more_replicas(case, speed))
    state = claim(relative, margin=margin)
    leg = Leg(name="pays", state=state, estimate=relative, margin=margin, reason=reason)
    match state:
        case "equal":
            shown = margin if relative.is_within(margin) else INDIFFERENT * margin
            leg = replace(leg, margin=shown, reason=f"{reason}, within ±{words.margin(shown)}")
        case "unclear" if is_confounded(case, arm):
            remedy = "each arm stayed on one machine: let them change machines half way (--swap)"
            pairs = speed.change.pairs
            need = Need(what="arms that change machines half way", pairs=pairs, step=swap(pairs))
            leg = replace(leg, reason=f"{reason}; {remedy}", needs=(need,))
        case "unclear":
            leg = replace(leg, reason=f"{reason}, undecided", needs=if_unclear)
        case _:
            pass
    return Tested(
        leg=leg,
        p_for=speed.spread.p_below(math.log1p(-margin)),
        p_against=speed.spread.p_above(math.log1p(margin)),
        if_unclear=if_unclear,
    )
