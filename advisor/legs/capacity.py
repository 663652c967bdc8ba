"""Decide whether an arm carries more agents per GPU.

Only runs that filled the pool can say so, or a load that the pool cannot limit. An arm pays by
faster turns or by more agents per GPU, and by neither where one is bought with the other.
"""

import math
from dataclasses import replace

from advisor import words
from advisor.case import Case
from advisor.dtypes import same_numbers
from advisor.estimate import Estimate, present
from advisor.results import Room
from advisor.verdict import Capacity, Leg, LegState, Need

AGENTS = "agents per GPU within the service level"
SAME_POOL = 0.05  # pools this close hold the same load
TRIALS = 14  # of a search: four to bracket the limit, and draws of sessions around it
LONGER = 4  # times as many sessions a trial: they halve what its draw leaves open
# half width of a claim: a wider interval covers
# whatever the truth is, and helps nobody to order GPUs
WIDEST = 0.25


def capacity_leg(case: Case, arm: str, workload: str | None) -> Leg:
    """Return whether the arm carries more, fewer or as many agents, or nobody can say yet."""
    failed = case.spoiler("capacity", arm, workload)
    measured = _measured(case, arm, workload)
    if measured is not None and failed is None:
        return _judged(case, arm, workload, *measured)
    level = case.service_level(arm)
    may_miss = level is not None and level.state == "unclear"
    if _equal_pools(case, arm) and not may_miss:
        return _argued(case, "equal", "both pools hold the same tokens")
    of_mix = None if workload is None else _of_mix(case, arm)
    if of_mix is not None:
        return of_mix
    room = case.room(workload)
    if room.state == "slack":
        return _argued(case, "equal", f"the KV pool does not limit this load: {room.reason}")
    if failed is not None:
        return _untested(case, f"{failed.name}: {failed.message}", _filling(case, arm))
    why = "; ".join([room.reason, *_silence(case, arm, workload)])
    # Where a search cannot fill the pools, another one ends as it did.
    needs = () if case.filling_search() is None else _filling(case, arm)
    return _untested(case, why, needs)


# --- by searches ---


def _measured(case: Case, arm: str, workload: str | None) -> tuple[Estimate, Estimate] | None:
    """Return the agents per GPU of the arm and of the reference; None where one is unknown."""
    agents = present(each.agents_per_gpu for each in _searched(case, arm, workload))
    if len(agents) < 2:
        return None
    mine, theirs = agents
    # A reference that carries nobody at all is no measure.
    return None if theirs.high == 0 else (mine, theirs)


def _searched(case: Case, arm: str, workload: str | None) -> list[Capacity]:
    """Return what searches on the arm and on the reference found."""
    return present(case.capacity_of(name, workload) for name in (arm, case.evidence.reference))


def _judged(case: Case, arm: str, workload: str | None, mine: Estimate, theirs: Estimate) -> Leg:
    """Return the criterion by the agents per GPU of the arm and of the reference."""
    gain = case.policy.min_capacity_gain
    ratio = _ratio(mine, theirs)
    state: LegState = "unclear"
    # Which carries more is known long before by how much: a
    # wide interval that lies beyond twice the margin tells.
    telling = gain if _is_narrow(mine, ratio) else 2 * gain
    # Equal agents decide nothing unless speed agrees, so they share no error with it.
    alike = _measured(case.undivided, arm, workload)
    undivided = ratio if alike is None else _ratio(*alike)
    if ratio.is_above(telling):
        state = "yes"
    elif ratio.is_below(-telling):
        state = "no"
    elif undivided.is_within(gain):
        state, ratio = "equal", undivided
    agents = words.quantity(_floor(mine), "agent")
    reason = (
        f"{_bound(mine)}{agents} per GPU for {_bound(theirs)}{_floor(theirs):,} on "
        f"{case.evidence.reference} ({words.change(ratio)})"
    )
    needs = (finer(case, arm, workload, ratio),) if state == "unclear" else ()
    return Leg(
        name="capacity", state=state, estimate=ratio, margin=gain, reason=reason, needs=needs
    )


def _ratio(mine: Estimate, theirs: Estimate) -> Estimate:
    """Return the relative change of agents per GPU, with an interval from those of both arms."""
    arm = replace(mine, value=_likely(mine), n=min(mine.n, theirs.n), method=AGENTS)
    reference = replace(theirs, value=_likely(theirs))
    ratio = arm.over(reference, unit="relative")
    return ratio.transformed(lambda times: times - 1)


def _likely(agents: Estimate) -> float:
    """Return the agents that held, or, where no step did, the most that may hold."""
    return agents.value or agents.high or 0.0


def _floor(agents: Estimate) -> int:
    return math.floor(_likely(agents))


def _bound(agents: Estimate) -> str:
    """Return the words before agents of which no step held."""
    return "" if agents.value else "at most "


def _is_narrow(mine: Estimate, ratio: Estimate) -> bool:
    """Say whether a ratio is known well enough for a claim.

    Where the arm carries nobody, the ratio is zero, whatever the other arm carries.
    """
    if not mine.value:
        return True
    if ratio.low is None or ratio.high is None:
        return False
    widest = (1 + ratio.low) * (1 + WIDEST) ** 2
    return 1 + ratio.high <= widest


def _of_mix(case: Case, arm: str) -> Leg | None:
    """Return what all classes together say: they share one server and its flag."""
    measured = _measured(case, arm, None)
    if measured is None or case.spoiler("capacity", arm, None) is not None:
        return None
    leg = _judged(case, arm, None, *measured)
    if len(case.evidence.workloads) == 1:
        return leg
    return replace(leg, reason=f"{leg.reason}, with all classes together")


# --- by argument ---


def _equal_pools(case: Case, arm: str) -> bool:
    mine, theirs = case.evidence.both(arm)
    if mine.pool_tokens and theirs.pool_tokens:
        return abs(mine.pool_tokens / theirs.pool_tokens - 1) <= SAME_POOL
    return same_numbers(mine, theirs)


def _argued(case: Case, state: LegState, reason: str) -> Leg:
    """Return the criterion without a figure."""
    return Leg(name="capacity", state=state, margin=case.policy.min_capacity_gain, reason=reason)


def _untested(case: Case, reason: str, needs: tuple[Need, ...]) -> Leg:
    return replace(_argued(case, "untested", reason), needs=needs)


def _silence(case: Case, arm: str, workload: str | None) -> list[str]:
    """Return why searches of the arm and of the reference say nothing, each reason once."""
    searched = _searched(case, arm, workload)
    reasons = (each.reason for each in searched if each.agents_per_gpu is None)
    return list(dict.fromkeys(reasons))


# --- what settles it ---


def finer(case: Case, arm: str, workload: str | None, ratio: Estimate) -> Need:
    """Return a search with longer steps, or a first search where there was a single step."""
    reference = case.evidence.reference
    if ratio.n <= 1:
        what = f"a search for capacity on {reference} and {arm}, in addition to its one step"
        return _search(case, what)
    minutes = [
        each.minutes
        for each in case.evidence.capacity
        if each.arm in (arm, reference) and each.workload in (workload, None)
    ]
    shortest_s = 60 * min(minutes, default=0.0)
    what = f"longer steps of the capacity search on {reference} and {arm}"
    return _search(case, what, seconds=LONGER * shortest_s)


def _filling(case: Case, arm: str) -> tuple[Need, ...]:
    """Return the search that may fill the pools."""
    what = f"long primed runs that fill the KV pool, {case.evidence.reference} and {arm}"
    return (_search(case, what),)


def _search(case: Case, what: str, *, seconds: float = 0.0) -> Need:
    """Return a search in which each trial takes *seconds* at least."""
    trial_s = max(seconds, case.trial_seconds())
    minutes = TRIALS * len(case.evidence.arms) * trial_s / 60
    return Need(
        what=what, minutes=minutes, usd=case.usd(minutes), step=case.search(seconds=seconds)
    )


# --- together with speed ---


def pays_leg(speed: Leg, capacity: Leg, room: Room, *, least_change: float) -> Leg:
    """Return the leg that speed and capacity give together; the reason names what decided."""
    # A larger pool may be worth more than its slower turns where the pool is what limits.
    may_outweigh = capacity.state == "unclear" or (
        capacity.state == "untested" and room.state == "binds"
    )
    # Turns that may have become longer by more than counts are a harm that more agents do not undo.
    may_harm = speed.estimate is not None and not speed.estimate.is_below(least_change)
    against = f"{speed.reason}, but {capacity.reason}: the service level has to choose"
    by_capacity = replace(capacity, name="pays", reason=f"{capacity.reason}; {speed.reason}")
    undecided = replace(
        speed,
        state="unclear",
        reason=f"{speed.reason}; capacity is undecided: {capacity.reason}",
        needs=capacity.needs,
    )
    match speed.state, capacity.state:
        case ("yes", "no") | ("no", "yes"):
            return replace(speed, state="no", reason=against)
        case "no", _ if may_outweigh:
            return undecided
        case "yes" | "no", _:
            return speed
        case "unclear", "yes" if may_harm:
            return replace(speed, reason=f"{capacity.reason}, but {speed.reason}")
        case _, "yes":
            return replace(by_capacity, needs=())
        case "equal", "equal":
            return replace(speed, reason=f"{speed.reason}; {capacity.reason}")
        case "equal", "no":
            return by_capacity
        case "equal", _:
            return undecided
        case _, _:
            return speed
