"""Say whether an arm meets the service level at all.

It may miss the level with a single session, or at the load that was played.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from advisor import words
from advisor.evidence import CapacityPoint, Evidence, present
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
    is_played = policy.decider(evidence.deployment.peak_agents) == "latency"
    found = (_of_arm(evidence, arm.name, slo, capacities) for arm in evidence.arms)
    return tuple(
        replace(each, is_missed_as_played=is_played and each.is_missed_as_played) for each in found
    )


def _of_arm(
    evidence: Evidence, arm: str, slo: ServiceLimits, capacities: Sequence[Capacity]
) -> ServiceLevel:
    alone = [each for each in evidence.alone if each.arm == arm and each.slo == slo]
    found = next((each for each in capacities if (each.arm, each.workload) == (arm, None)), None)
    return ServiceLevel(
        arm=arm,
        limits=words.limits(slo),
        state=_state(evidence, alone, slo, found),
        is_missed_as_played=_is_missed(evidence, arm, slo),
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
        agents, gpus = found.agents_per_gpu, evidence.gpus(found.arm) * evidence.deployment.replicas
        if agents.low is not None and agents.low * gpus >= 1:
            return "yes"
        if agents.high is not None and agents.high * gpus < 1:
            return "no"
    heard = [each for each in alone if each.turns]
    if not heard:
        return "untested"
    turns, within = (sum(getattr(each, name) for each in heard) for name in ("turns", "within_slo"))
    if turns >= FEWEST and within >= slo.share * turns:
        return "yes"
    misses = [each for each in heard if each.within_slo <= MISSED * each.turns]
    return "no" if len(misses) == len(heard) >= SESSIONS else "unclear"


def _lightest(evidence: Evidence, arm: str, slo: ServiceLimits) -> list[CapacityPoint]:
    """Return an arm's trials at the smallest load that its search tried."""
    own = [each for each in evidence.capacity if each.arm == arm and each.slo == slo]
    least = min((each.agents for each in own), default=0)
    return [each for each in own if each.agents == least]


def _reason(points: Sequence[CapacityPoint], slo: ServiceLimits) -> str:
    """Name the limit that is missed by most, and by how much; empty where none is missed."""
    worst, said = 1.0, ""
    for metric, limit in slo.limits():
        seen: list[float] = present(getattr(each, metric) for each in points)
        beyond = median(seen) / limit if seen else 1.0
        if beyond > worst:
            name = f"{metric.removesuffix('_ms').upper()} p{100 * slo.share:.0f}"
            worst = beyond
            said = f"{name} is {words.ms(median(seen))}, {words.beyond(beyond)} {words.ms(limit)}"
    return said


def _is_missed(evidence: Evidence, arm: str, slo: ServiceLimits) -> bool:
    """Say whether the played turns of some class surely break a limit of *slo*."""
    for workload in evidence.workloads:
        calls = evidence.calls(workload.name, arm)
        if calls is None:
            continue
        for metric, limit in slo.limits():
            took = quantile(calls.lasting(metric), calls.session, slo.share, unit="ms")
            if took is not None and took.is_above(limit) and math.isfinite(limit):
                return True
    return False
