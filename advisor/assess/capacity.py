"""Say how many agents one GPU carries within the service level, from long runs that filled the pool and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from advisor.estimate import Estimate
from advisor.evidence import CapacityPoint, Deployment, Evidence
from advisor.policy import Policy
from advisor.verdict import Capacity

_SHARE = 0.95  # of turns within the service level, when the policy states none
_LEVEL = 0.95


def agents_per_gpu(points: Sequence[CapacityPoint], *, share: float, gpus: int) -> Estimate | None:
    """Return the largest number of agents per GPU at which *share* of the turns holds the service level.

    The interval runs from the last step that surely holds it to just below the first that surely breaks it (Wilson); an open upper end
    means that no step broke it. None when not even the first step holds.
    """
    steps: dict[int, tuple[int, int]] = {}
    for each in points:
        within, turns = steps.get(each.agents, (0, 0))
        steps[each.agents] = (within + each.within_slo, turns + each.turns)
    holds, surely, breaks = 0, 0, math.inf
    for agents in sorted(steps):
        within, turns = steps[agents]
        interval = stats.binomtest(within, turns).proportion_ci(_LEVEL, method="wilson")
        if within / turns >= share and math.isinf(breaks):
            holds = agents
        if interval.low >= share and surely == max((a for a in steps if a < agents), default=0):
            surely = agents
        if interval.high < share:
            breaks = min(breaks, agents)
    if not holds:
        return None
    return Estimate(
        value=holds / gpus,
        low=surely / gpus,
        high=None if math.isinf(breaks) else (breaks - 1) / gpus,
        n=len(steps),
        unit="agents/GPU",
        method=f"steps of a capacity search with {share:.0%} of turns within the service level (Wilson)",
        level=_LEVEL,
    )


def _replicas(estimate: Estimate, deployment: Deployment) -> tuple[int | None, int | None]:
    """Return the replicas at the user's peak and the load at which one more is due."""
    per_replica = math.floor(estimate.value * deployment.gpus_per_replica)
    if deployment.peak_agents is None or per_replica < 1:
        return None, None
    busy = math.ceil(deployment.peak_agents / per_replica)
    return busy + deployment.spare_replicas, busy * per_replica + 1


def _capacity(evidence: Evidence, policy: Policy, arm: str, workload: str | None) -> Capacity | None:
    points = [each for each in evidence.capacity if each.arm == arm and each.workload == workload and each.turns > 0]
    if not points:
        return None

    def silent(reason: str) -> Capacity:
        return Capacity(arm=arm, workload=workload, agents_per_gpu=None, replicas_at_peak=None, next_replica_at_agents=None, reason=reason)

    if not any(each.pool_filled for each in points):
        watched = all(each.pool_filled is not None for each in points)
        return silent("the KV pool never filled" if watched else "nobody watched whether the KV pool filled")
    slo = policy.slo(workload)
    found = agents_per_gpu(
        points, share=_SHARE if slo is None else slo.share, gpus=evidence.deployment.gpus_per_replica * evidence.deployment.replicas
    )
    if found is None:
        return silent("not even the smallest step held the service level")
    replicas, due = _replicas(found, evidence.deployment)
    return Capacity(
        arm=arm,
        workload=workload,
        agents_per_gpu=found,
        replicas_at_peak=replicas,
        next_replica_at_agents=due,
        reason="pool filled" if found.high is not None else "pool filled; no step broke the service level, so this is a lower bound",
    )


def capacities(evidence: Evidence, policy: Policy) -> tuple[Capacity, ...]:
    """Return the capacity of every arm, for the whole mix and for each workload that was searched on its own."""
    scopes = (None, *(each.name for each in evidence.workloads))
    found = (_capacity(evidence, policy, arm.name, workload) for arm in evidence.arms for workload in scopes)
    return tuple(each for each in found if each is not None)
