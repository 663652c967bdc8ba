"""Does the arm carry more agents per GPU? Only runs that filled the pool can say so, or a load that the pool cannot limit."""

from __future__ import annotations

from advisor import words
from advisor.case import Case
from advisor.estimate import Estimate
from advisor.legs import machines
from advisor.verdict import Leg, LegState, Need

AGENTS = "agents per GPU within the service level"
SAME_POOL = 0.05  # pools this close hold the same load


def _equal_pools(case: Case, arm: str) -> bool:
    mine, theirs = case.evidence.arm(arm), case.evidence.arm(case.evidence.reference)
    if mine.pool_tokens and theirs.pool_tokens:
        return abs(mine.pool_tokens / theirs.pool_tokens - 1) <= SAME_POOL
    return machines.same_numbers(case, arm)


def _measured(case: Case, arm: str, workload: str | None) -> tuple[Estimate, Estimate] | None:
    mine, theirs = case.capacity_of(arm, workload), case.capacity_of(case.evidence.reference, workload)
    if mine is None or theirs is None or mine.agents_per_gpu is None or theirs.agents_per_gpu is None:
        return None
    return mine.agents_per_gpu, theirs.agents_per_gpu


def _ratio(mine: Estimate, theirs: Estimate) -> Estimate:
    return Estimate(
        value=mine.value / theirs.value - 1,
        low=None if mine.low is None or theirs.high is None else mine.low / theirs.high - 1,
        high=None if mine.high is None or not theirs.low else mine.high / theirs.low - 1,
        n=min(mine.n, theirs.n),
        unit="relative",
        method=AGENTS,
    )


def _judged(case: Case, arm: str, mine: Estimate, theirs: Estimate) -> Leg:
    gain, ratio, reference = case.policy.min_capacity_gain, _ratio(mine, theirs), case.evidence.reference
    state: LegState = "unclear"
    if ratio.is_above(gain):
        state = "yes"
    elif ratio.is_below(-gain):
        state = "no"
    elif ratio.is_within(gain):
        state = "equal"
    told = f"{mine.value:.0f} agents per GPU for {theirs.value:.0f} on {reference} ({words.change(ratio)})"
    need = Need(what=f"finer steps of the capacity search on {reference} and {arm}", command=case.search())
    return Leg(name="capacity", state=state, estimate=ratio, margin=gain, reason=told, needs=(need,) if state == "unclear" else ())


def _fill_minutes(case: Case, workload: str | None) -> float | None:
    """Return the time the load needs to fill the pool, as the plan told it; for the mix, that of its slowest class."""
    scopes = [workload] if workload is not None else list(case.scopes())
    found = (case.evidence.telemetry(scope, case.evidence.reference) for scope in scopes)
    return max((each.fill_minutes for each in found if each is not None and each.fill_minutes is not None), default=None)


def capacity_leg(case: Case, arm: str, workload: str | None) -> Leg:
    """Return whether the arm carries more, fewer or as many agents, or that nothing can be said yet."""
    spoiled, measured = case.spoiled("capacity", arm, workload), _measured(case, arm, workload)
    if measured is not None and spoiled is None:
        return _judged(case, arm, *measured)
    gain = case.policy.min_capacity_gain
    if _equal_pools(case, arm):
        return Leg(name="capacity", state="equal", margin=gain, reason="both pools hold the same tokens")
    room = case.room(workload)
    if room.state == "slack":
        return Leg(name="capacity", state="equal", margin=gain, reason=f"the pool does not limit this load: {room.reason}")
    reference = case.evidence.reference
    silent = [found.reason for name in (arm, reference) if (found := case.capacity_of(name, workload)) is not None]
    told = "; ".join([room.reason, *dict.fromkeys(silent)] if spoiled is None else [f"{spoiled.name}: {spoiled.message}"])
    need = Need(
        what=f"long primed runs that fill the KV pool, {reference} and {arm}",
        minutes=_fill_minutes(case, workload),
        command=case.search(),
    )
    return Leg(name="capacity", state="untested", margin=gain, reason=told, needs=(need,))
