"""Say whether an arm meets the service level at all.

It may miss the level with a single session, or at the load that was played.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from advisor import words
from advisor.estimate import Estimate, present
from advisor.evidence import Calls, Evidence
from advisor.loads import CapacityPoint
from advisor.policy import Policy, ServiceLimits
from advisor.statistics.quantiles import quantile
from advisor.verdict import Capacity, LegState, ServiceLevel

FEWEST = 6  # turns of single sessions that show an arm within the level
# single sessions that show an arm beyond the level, however few turns each has: one may be odd
SESSIONS = 3
# share of turns: where half of each session's turns miss, no draw of sessions is to blame
MISSED = 0.5


def service_levels(
    evidence: Evidence, policy: Policy, capacities: Sequence[Capacity]
) -> tuple[ServiceLevel, ...]:
    """Return what is known of each arm; empty where no level is stated for the whole mix."""
    slo = policy.slo(None)
    if slo is None:
        return ()
    # Where GPUs decide, each arm runs at a load that is within the level.
    is_played = policy.decider(evidence.deployment.peak_agents) != "gpus"
    return tuple(
        ServiceLevel(
            arm=arm.name,
            limits=words.limits(slo),
            state=_state(evidence, arm.name, slo, capacities),
            is_missed_as_played=is_played and _is_missed(evidence, arm.name, policy, slo),
            reason=_reason(_lightest(evidence, arm.name, slo), slo),
            agents_per_gpu=_agents_per_gpu(arm.name, capacities),
        )
        for arm in evidence.arms
    )


def _agents_per_gpu(arm: str, capacities: Sequence[Capacity]) -> Estimate | None:
    """Return the agents of the mix that a GPU of the arm carries; None where unknown."""
    for each in capacities:
        if each.arm == arm and each.workload is None:
            return each.agents_per_gpu
    return None


def _trials(points: Iterable[CapacityPoint], arm: str, slo: ServiceLimits) -> list[CapacityPoint]:
    """Return the trials of an arm at this service level."""
    return [each for each in points if each.arm == arm and each.slo == slo]


def _state(
    evidence: Evidence, arm: str, slo: ServiceLimits, capacities: Sequence[Capacity]
) -> LegState:
    """Return whether a single session is within the level.

    A search with many trials of many sessions says more than a few trials of one.
    """
    agents_per_gpu = _agents_per_gpu(arm, capacities)
    if agents_per_gpu is not None:
        gpus = evidence.gpus(arm) * evidence.deployment.replicas
        carries = _carries_one(agents_per_gpu, gpus)
        if carries is not None:
            return "yes" if carries else "no"
    alone = _trials(evidence.alone, arm, slo)
    with_turns = [each for each in alone if each.turns]
    return _state_alone(with_turns, slo)


def _carries_one(agents_per_gpu: Estimate, gpus: float) -> bool | None:
    """Say whether a server of *gpus* GPUs carries one agent; None where a search leaves it open."""
    agents = agents_per_gpu.transformed(lambda each: each * gpus)
    if agents.low is not None and agents.low >= 1:
        return True
    return False if agents.is_below(1) else None


def _state_alone(trials: Sequence[CapacityPoint], slo: ServiceLimits) -> LegState:
    """Return whether trials of a single session, which all have turns, are within the level."""
    if not trials:
        return "untested"
    turns = sum(each.turns for each in trials)
    within = sum(each.within_slo for each in trials)
    if turns >= FEWEST and within >= slo.share * turns:
        return "yes"
    all_miss = all(each.within_slo <= MISSED * each.turns for each in trials)
    if all_miss and len(trials) >= SESSIONS:
        return "no"
    return "unclear"


def _lightest(evidence: Evidence, arm: str, slo: ServiceLimits) -> list[CapacityPoint]:
    """Return the trials of a single session, or else those at the smallest load of a search."""
    alone = _trials(evidence.alone, arm, slo)
    if alone:
        return alone
    searched = _trials(evidence.capacity, arm, slo)
    least = min((each.agents for each in searched), default=0)
    return [each for each in searched if each.agents == least]


def _reason(points: Sequence[CapacityPoint], slo: ServiceLimits) -> str:
    """Name the limit that the median trial exceeds most, and how far; empty where none does."""
    worst = 1.0
    reason = ""
    for metric, limit in slo.limits():
        seen: list[float] = present(getattr(each, metric) for each in points)
        if not seen:
            continue
        typical = median(seen)
        factor = typical / limit
        if factor > worst:
            worst = factor
            name = metric.removesuffix("_ms").upper()
            quantile_name = f"{name} p{100 * slo.share:.0f}"
            excess = f"{words.beyond(factor)} {words.ms(limit)}"
            reason = f"{quantile_name} is {words.ms(typical)}, {excess}"
    return reason


def _is_missed(evidence: Evidence, arm: str, policy: Policy, slo: ServiceLimits) -> bool:
    """Say whether the played turns of some class surely break a limit of *slo*.

    Classes with a service level of their own are held to that one, not to this.
    """
    for workload in evidence.workloads:
        calls = evidence.calls(workload.name, arm)
        is_held = policy.slo(workload.name) == slo
        if is_held and calls is not None and _surely_breaks(calls, slo):
            return True
    return False


def _surely_breaks(calls: Calls, slo: ServiceLimits) -> bool:
    for metric, limit in slo.limits():
        took = quantile(calls.lasting(metric), calls.session, slo.share, unit="ms")
        if took is not None and took.is_above(limit) and math.isfinite(limit):
            return True
    return False
