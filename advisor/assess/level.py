"""Say whether an arm meets the service level at all.

It may miss the level with a single session, or at the load that was played.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from advisor import words
from advisor.estimate import Estimate
from advisor.evidence import Calls, CapacityPoint, Evidence, present
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
    found = (_of_arm(evidence, arm.name, policy, slo, capacities) for arm in evidence.arms)
    return tuple(
        replace(each, is_missed_as_played=is_played and each.is_missed_as_played) for each in found
    )


def _of_arm(
    evidence: Evidence, arm: str, policy: Policy, slo: ServiceLimits, capacities: Sequence[Capacity]
) -> ServiceLevel:
    alone = [each for each in evidence.alone if each.arm == arm and each.slo == slo]
    of_mix = [each for each in capacities if each.arm == arm and each.workload is None]
    found = of_mix[0] if of_mix else None
    return ServiceLevel(
        arm=arm,
        limits=words.limits(slo),
        state=_state(evidence, alone, slo, found),
        is_missed_as_played=_is_missed(evidence, arm, policy, slo),
        reason=_reason(alone or _lightest(evidence, arm, slo), slo),
        agents_per_gpu=None if found is None else found.agents_per_gpu,
    )


def _state(
    evidence: Evidence, alone: Sequence[CapacityPoint], slo: ServiceLimits, found: Capacity | None
) -> LegState:
    """Return whether a single session is within the level.

    A search with many trials of many sessions says more than a few trials of one.
    """
    if found is not None and found.agents_per_gpu is not None:
        gpus = evidence.gpus(found.arm) * evidence.deployment.replicas
        carried = _carries_one(found.agents_per_gpu, gpus)
        if carried is not None:
            return "yes" if carried else "no"
    return _state_alone([each for each in alone if each.turns], slo)


def _carries_one(agents: Estimate, gpus: float) -> bool | None:
    """Say whether a server of *gpus* GPUs carries one agent; None where a search leaves it open."""
    if agents.low is not None and agents.low * gpus >= 1:
        return True
    if agents.high is not None and agents.high * gpus < 1:
        return False
    return None


def _state_alone(trials: Sequence[CapacityPoint], slo: ServiceLimits) -> LegState:
    """Return whether trials of a single session, which all have turns, are within the level."""
    if not trials:
        return "untested"
    turns = sum(each.turns for each in trials)
    within = sum(each.within_slo for each in trials)
    if turns >= FEWEST and within >= slo.share * turns:
        return "yes"
    all_miss = all(each.within_slo <= MISSED * each.turns for each in trials)
    return "no" if all_miss and len(trials) >= SESSIONS else "unclear"


def _lightest(evidence: Evidence, arm: str, slo: ServiceLimits) -> list[CapacityPoint]:
    """Return an arm's trials at the smallest load that its search tried."""
    own = [each for each in evidence.capacity if each.arm == arm and each.slo == slo]
    least = min((each.agents for each in own), default=0)
    return [each for each in own if each.agents == least]


def _reason(points: Sequence[CapacityPoint], slo: ServiceLimits) -> str:
    """Name the limit that is missed by most, and by how much; empty where none is missed."""
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
    held = [each.name for each in evidence.workloads if policy.slo(each.name) == slo]
    return any(_surely_breaks(evidence.calls(name, arm), slo) for name in held)


def _surely_breaks(calls: Calls | None, slo: ServiceLimits) -> bool:
    if calls is None:
        return False
    for metric, limit in slo.limits():
        took = quantile(calls.lasting(metric), calls.session, slo.share, unit="ms")
        if took is not None and took.is_above(limit) and math.isfinite(limit):
            return True
    return False
