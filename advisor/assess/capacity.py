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

    The interval runs from the last step that surely holds it (Wilson) to just below the first that surely does not: its turns say so, or
    the server was in trouble. Where more agents are carried, fewer are: a smaller step need not be sure itself. An open upper end means
    that no step broke. None when nothing is known: no step holds, and none surely breaks.
    """
    steps: dict[int, list[CapacityPoint]] = {}
    for each in points:
        steps.setdefault(each.agents, []).append(each)
    holds, surely, breaks = 0, 0, math.inf
    for agents in sorted(steps):
        within, turns = sum(each.within_slo for each in steps[agents]), sum(each.turns for each in steps[agents])
        if any(each.trouble is not None for each in steps[agents]):
            breaks = agents
            break
        interval = stats.binomtest(within, turns).proportion_ci(_LEVEL, method="wilson")
        if interval.high < share:
            breaks = agents
            break
        if within / turns >= share:
            holds = agents
        if interval.low >= share:
            surely = agents
    if not holds and math.isinf(breaks):
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


def _busy(agents_per_gpu: float | None, deployment: Deployment, gpus: int) -> int | None:
    """Return the replicas that the user's peak keeps busy where each GPU carries so many (None: any number)."""
    if deployment.peak_agents is None:
        return None
    if agents_per_gpu is None:
        return 1
    # A share of a GPU times its GPUs may fall short of the whole number it stands for.
    per_replica = math.floor(agents_per_gpu * gpus + 1e-9)
    return math.ceil(deployment.peak_agents / per_replica) if per_replica >= 1 else None


def _due(found: Estimate, busy: int | None, gpus: int) -> int | None:
    """Return the load at which one more replica is due."""
    return None if busy is None else busy * math.floor(found.value * gpus + 1e-9) + 1


def _reason(found: Estimate, points: Sequence[CapacityPoint]) -> str:
    if not found.value:
        return f"pool filled; no step held the service level, the smallest had {min(each.agents for each in points)} agents"
    if found.high is None:
        return "pool filled; no step broke the service level, so this is a lower bound"
    trouble = next((each.trouble for each in sorted(points, key=lambda each: each.agents) if each.trouble is not None), None)
    return "pool filled" if trouble is None else f"pool filled; beyond it the server is in trouble: {trouble}"


def _capacity(evidence: Evidence, policy: Policy, arm: str, workload: str | None) -> Capacity | None:
    mine = (each for each in evidence.capacity if each.arm == arm and each.workload == workload)
    points = [each for each in mine if each.turns > 0 or each.trouble is not None]
    if not points:
        return None

    def silent(reason: str) -> Capacity:
        return Capacity(arm=arm, workload=workload, agents_per_gpu=None, replicas_at_peak=None, next_replica_at_agents=None, reason=reason)

    if not any(each.pool_filled for each in points):
        watched = all(each.pool_filled is not None for each in points)
        return silent("the KV pool never filled" if watched else "nobody watched whether the KV pool filled")
    slo = policy.slo(workload)
    gpus = evidence.gpus(arm)
    found = agents_per_gpu(points, share=_SHARE if slo is None else slo.share, gpus=gpus * evidence.deployment.replicas)
    if found is None:
        return silent("no step holds the service level, and none surely breaks it: too few turns")
    deployment = evidence.deployment
    fewest, busy, most = (_busy(each, deployment, gpus) for each in (found.high, found.value, found.low or 0.0))
    return Capacity(
        arm=arm,
        workload=workload,
        agents_per_gpu=found,
        replicas_at_peak=None if busy is None else busy + deployment.spare_replicas,
        fewest_replicas=None if fewest is None else fewest + deployment.spare_replicas,
        most_replicas=None if most is None else most + deployment.spare_replicas,
        next_replica_at_agents=_due(found, busy, gpus),
        reason=_reason(found, points),
    )


def capacities(evidence: Evidence, policy: Policy) -> tuple[Capacity, ...]:
    """Return the capacity of every arm, for the whole mix and for whatever was searched on its own."""
    named = [each.name for each in evidence.workloads]
    together = sorted({each.workload for each in evidence.capacity if each.workload is not None} - set(named))
    found = (_capacity(evidence, policy, arm.name, workload) for arm in evidence.arms for workload in (None, *named, *together))
    return tuple(each for each in found if each is not None)
