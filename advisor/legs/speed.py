"""Decide whether an arm is faster: turn latency against the smallest change that counts.

What a start of a server and its machine add was drawn once for all pairs of that start, and is in
the interval: measured where there are enough starts, else by what the policy or the database's
history says of starts. No claim is lost to a control: a noisy one tells little.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from advisor import words
from advisor.case import Case, SpeedComparison, Tested
from advisor.estimate import Estimate
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
FEWEST = 6  # pairs, three a half: with fewer, the machine cannot be taken out of the difference


def is_confounded(case: Case, arm: str) -> bool:
    """Say whether *arm* and the reference ran on different machines and never changed places."""
    deployment = case.evidence.deployment
    mine, theirs = (each.machine for each in case.evidence.both(arm))
    return (
        len(deployment.machines) > 1
        and not deployment.swapped
        and (mine is None or theirs is None or mine != theirs)
    )


def swap(pairs: int) -> Swap:
    """Return a replay of an even number of pairs in which the arms change machines half way.

    It has *pairs* pairs at least.
    """
    return Swap(pairs=max(FEWEST, pairs + pairs % 2))


def more_pairs(case: Case, speed: SpeedComparison) -> Need:
    """Return what settles *speed* against the smallest change that counts.

    Pairs do where the error of the starts that they share leaves room for it, else restarts.
    """
    return _pairs(case, speed) or restarts(case, speed)


def _pairs(case: Case, speed: SpeedComparison) -> Need | None:
    have, scatter, margin = speed.change.pairs, speed.scatter, math.log1p(case.policy.min_change)
    # A simulation starts again, longer, which is the same look; a run is looked at once more.
    level = _planned_level(
        case, speed, look=case.evidence.looks + (case.evidence.kind != "simulated")
    )
    # More pairs do not shrink the error of their starts:
    # they have to settle within what it leaves of the margin.
    room = margin**2 - (z_reach(level) * scatter.start) ** 2 / speed.starts
    if room <= 0:
        return None
    units = units_needed(scatter.pair, math.sqrt(room), level=level)
    if units > MOST_PAIRS:
        return None
    # Enough for nine truths of ten, and still open: it lies at the
    # margin itself, where only a narrower interval can settle it.
    more = units - have if units > have else have
    return Need(
        what=f"paired calls of {words.scope(speed.change.workload)} on {speed.change.arm}",
        calls=math.ceil(more * speed.calls_per_pair),
        pairs=more,
        minutes=more * speed.minutes_per_pair,
        usd=case.usd(more * speed.minutes_per_pair),
        step=MorePairs(pairs=have + more),
    )


def _planned_level(case: Case, speed: SpeedComparison, *, look: int) -> float:
    """Return the level to plan at: that of the look that will decide.

    It is never above that of two criteria that both have to hold.
    """
    return min(LEVEL / FAMILY, case.level(speed.change.arm, look=look))


def restarts(case: Case, speed: SpeedComparison) -> Need:
    """Return a new run that settles *speed* with a start of both servers for every pair.

    It assumes nothing of starts. Where that takes more than `MOST_PAIRS` pairs, the need has no
    count, and says what else to do.
    """
    total = math.hypot(speed.scatter.pair, speed.scatter.start)
    level = _planned_level(case, speed, look=1)
    pairs = max(ENOUGH_STARTS, units_needed(total, math.log1p(case.policy.min_change), level=level))
    if pairs > MOST_PAIRS:
        what = (
            f"steadier block pairs of {words.scope(speed.change.workload)} on "
            f"{speed.change.arm}; those played scatter by {total:.0%}, and "
            f"over {MOST_PAIRS:,} such pairs would be needed: play longer blocks, keep "
            "other load off the servers and this machine, or "
            "accept a larger margin (min_change)"
        )
        return Need(what=what, step=Restarts(restarts=pairs))
    arms = len(case.evidence.arms) + bool(case.evidence.aa)
    return Need(
        what=f"block pairs with starts of their own ({words.scope(speed.change.workload)} on "
        f"{speed.change.arm})",
        calls=math.ceil(pairs * speed.calls_per_pair),
        pairs=pairs,
        minutes=pairs * (speed.minutes_per_pair + arms * START_MINUTES),
        step=Restarts(restarts=pairs),
    )


def more_replicas(case: Case, speed: SpeedComparison) -> Iterator[Need]:
    """Yield the need for twice as many servers of each arm, where their starts leave it open.

    Only where pairs take turns on servers that run all the time.
    """
    pairs = 2 * (speed.in_turn or 0)
    if (
        pairs not in REPLICAS
        or case.evidence.kind != "measured"
        or is_confounded(case, speed.change.arm)
        or speed.scatter.start == 0
    ):
        return
    equal, faster = REPLICAS[pairs]
    arms = (case.evidence.reference, speed.change.arm)
    urls = ",".join(f"{arm}=URL" for arm in arms for _ in range(pairs))
    what = (
        f"{pairs} servers of each arm that run already "
        f"({words.scope(speed.change.workload)} on {speed.change.arm}), in --endpoints as "
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
    claimed, doubted = (
        claim(speed.change.relative, margin=margin),
        claim(speed.doubted, margin=margin),
    )
    assumed = speed.starts == 1 and case.evidence.starts is None
    return claimed in ("yes", "no") and (assumed or claimed != doubted)


def claim(relative: Estimate, *, margin: float) -> LegState:
    """Return whether turn latency surely falls (yes), surely rises (no), or stays (equal).

    By more than *margin*, as its interval says; unclear where the interval leaves it open.
    """
    if relative.is_below(-margin):
        return "yes"
    if relative.is_above(margin):
        return "no"
    return (
        "equal"
        if abs(relative.value) < margin and relative.is_within(INDIFFERENT * margin)
        else "unclear"
    )


def _untested(case: Case, arm: str, workload: str | None) -> Tested:
    spoiled = case.spoiler("turn", arm, workload)
    if spoiled is not None:
        reason = (
            f"turn latency cannot be judged, because a validity check failed ({spoiled.name}: "
            f"{spoiled.message})"
        )
        needs = (_checked_again(case, spoiled, arm, workload),)
    elif case.decisive == "task_ms" and case.comparison(arm, workload) is not None:
        tasks = case.task_figures(arm, workload)
        why = "" if tasks is None else tasks.unknown
        reason = f"task latency is not known: {why or 'the run does not say what ends a task'}"
        needs = (Need(what="whole sessions, or windows that cover the turns of a task"),)
    else:
        reason = "fewer than three block pairs"
        needs = (
            Need(
                what=f"block pairs of {words.scope(workload)} on {arm}",
                pairs=MIN_PAIRS,
                step=MorePairs(pairs=MIN_PAIRS),
            ),
        )
    return Tested(
        leg=Leg(
            name="pays", state="untested", margin=case.policy.min_change, reason=reason, needs=needs
        )
    )


def _unsized(speed: SpeedComparison) -> str:
    """Say whose KV pool the pairs overfilled: capacity alone shows how large the change is."""
    full = speed.change.overfull
    if not full:
        return ""
    return (
        f" (the contexts of the pairs do not fit the KV pool of {' and '.join(full)}: how much "
        "is capacity's to say)"
    )


def _checked_again(case: Case, gate: Gate, arm: str, workload: str | None) -> Need:
    """Return what may make a failed *gate* pass: more starts, or another run.

    More starts where the gate judged too few of them to end a comparison.
    """
    speed = case.comparison(arm, gate.workload or workload)
    if (
        gate.name in OF_STARTS
        and gate.workload is not None
        and speed is not None
        and speed.change.pairs < SURE_PAIRS
    ):
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
    return Need(what=f"a rerun in which the check '{gate.name}' passes", step=Again())


def speed_leg(case: Case, arm: str, workload: str | None) -> Tested:
    """Return whether turn latency falls or rises by more than the margin, or stays within."""
    speed = case.speed(arm, workload, case.decisive)
    if speed is None:
        return _untested(case, arm, workload)
    spread, relative, margin = speed.spread, speed.change.relative, case.policy.min_change
    needs = (more_pairs(case, speed), *more_replicas(case, speed))
    what = "task latency" if case.decisive == "task_ms" else "turn latency"
    told = f"{what} {words.change(relative)}{_unsized(speed)}"

    def tested(state: LegState, reason: str, settles: tuple[Need, ...] = ()) -> Tested:
        leg = Leg(
            name="pays", state=state, estimate=relative, margin=margin, reason=reason, needs=settles
        )
        p_for, p_against = spread.p_below(math.log1p(-margin)), spread.p_above(math.log1p(margin))
        return Tested(leg=leg, p_for=p_for, p_against=p_against, if_unclear=needs)

    match claim(relative, margin=margin):
        case "equal":
            within = margin if relative.is_within(margin) else INDIFFERENT * margin
            equal = tested("equal", f"{told}, within ±{within:.1%}")
            return replace(equal, leg=replace(equal.leg, margin=within))
        case "unclear" if is_confounded(case, arm):
            swapped = Need(
                what="arms that change machines half way",
                pairs=speed.change.pairs,
                step=swap(speed.change.pairs),
            )
            return tested(
                "unclear",
                f"{told}; each arm stayed on one machine: let them change machines half way "
                "(--swap)",
                (swapped,),
            )
        case "unclear":
            return tested("unclear", f"{told}, undecided", needs)
        case state:
            return tested(state, told)
