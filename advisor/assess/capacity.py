"""Say how many agents one GPU carries within the service level.

Only long runs that filled the pool can say it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor import words
from advisor.deployment import Deployment
from advisor.estimate import Estimate, present
from advisor.evidence import Evidence
from advisor.loads import CapacityPoint
from advisor.policy import Policy
from advisor.statistics.carried_loads import carried_loads
from advisor.statistics.crossing import LEVEL, CarriedLoad, Tried
from advisor.verdict import Capacity

SHARE = 0.95  # of turns within the service level, when nobody states one


def _agents_per_gpu(
    limit: CarriedLoad, *, trials: int, share: float, gpus: int, level: float
) -> Estimate:
    how = (
        "twins with the step times that the trials of all arms ask for, in long runs to"
        if limit.is_by_twin
        else "trials of all arms, the share of turns within the service level regressed on log "
        "load to"
    )
    return Estimate(
        value=limit.value / gpus,
        low=limit.low / gpus,
        high=None if limit.high is None else limit.high / gpus,
        n=trials,
        unit="agents/GPU",
        method=f"{how} {share:.0%}",
        level=level,
    )


def _busy(agents_per_gpu: float | None, deployment: Deployment, gpus: int) -> int | None:
    """Return the replicas that the user's peak keeps busy, by what each GPU carries.

    None for *agents_per_gpu* means any number.
    """
    if deployment.peak_agents is None:
        return None
    if agents_per_gpu is None:
        return 1
    # Agents per GPU times GPUs may fall just short of the whole number that was divided.
    per_replica = math.floor(agents_per_gpu * gpus + 1e-9)
    if per_replica >= 1:
        return math.ceil(deployment.peak_agents / per_replica)
    return None


def _gpus(
    replicas: tuple[int | None, int | None, int | None],
    deployment: Deployment,
    found: Estimate,
    *,
    each: int,
) -> Estimate | None:
    """Return the GPUs of the busy replicas (fewest, likely, most), spare ones included.

    A replica has *each* GPUs.
    """

    def gpus(busy: int) -> float:
        return float((busy + deployment.spare_replicas) * each)

    fewest, likely, most = replicas
    if fewest is None or likely is None:
        return None
    return Estimate(
        value=gpus(likely),
        low=gpus(fewest),
        high=None if most is None else gpus(most),
        n=found.n,
        level=found.level,
        unit="GPUs",
        method="whole replicas that carry the peak",
    )


def fewer_gpus(before: Estimate | None, after: Estimate | None) -> Estimate | None:
    """Return how many GPUs fewer are needed at the peak *after* than *before*; None if unknown.

    The interval ends at whole GPUs.
    """
    if before is None or after is None:
        return None
    fewer = before.minus(after)
    return replace(
        fewer,
        low=None if fewer.low is None else float(math.floor(fewer.low)),
        high=None if fewer.high is None else float(math.ceil(fewer.high)),
    )


def _due(found: Estimate, busy: int | None, gpus: int) -> int | None:
    """Return the load at which one more replica is due."""
    if busy is None:
        return None
    return busy * math.floor(found.value * gpus + 1e-9) + 1


def _reason(found: Estimate, points: Sequence[CapacityPoint]) -> str:
    if not found.value:
        smallest = min(each.agents for each in points)
        return f"the SLO was missed even at {smallest} agents, the smallest load tried"
    if found.high is None:
        return "pool filled; every load tried met the SLO, so this is a lower bound"
    rising = sorted(points, key=lambda each: each.agents)
    troubles = present(each.trouble for each in rising)
    if not troubles:
        return "pool filled"
    return f"pool filled; beyond it the server is in trouble: {troubles[0]}"


def limits(
    points: Mapping[str, Sequence[CapacityPoint]], *, share: float, level: float = LEVEL
) -> dict[str, CarriedLoad]:
    """Return the agents that each arm carries, from the trials of all of them together."""
    tried = {arm: [_tried(each) for each in own] for arm, own in points.items()}
    return carried_loads(tried, share=share, level=level)


def _tried(point: CapacityPoint) -> Tried:
    return Tried.of(
        point.agents,
        point.turns,
        point.within_slo,
        point.trouble,
        worth=point.worth,
        error=point.error,
        replay=point.replay,
    )


def _capacity(
    evidence: Evidence,
    arm: str,
    workload: str | None,
    points: Sequence[CapacityPoint],
    limit: CarriedLoad,
    *,
    share: float,
    level: float,
) -> Capacity:
    # Where no load meets the level, the pool is not what limits.
    if limit.value and not any(each.pool_filled for each in points):
        return Capacity(
            arm=arm,
            workload=workload,
            agents_per_gpu=None,
            replicas_at_peak=None,
            next_replica_at_agents=None,
            reason=_unfilled(points, limit),
        )
    gpus = evidence.gpus(arm)
    deployment = evidence.deployment
    found = _agents_per_gpu(
        limit, trials=len(points), share=share, gpus=gpus * deployment.replicas, level=level
    )
    fewest = _busy(found.high, deployment, gpus)
    busy = _busy(found.value, deployment, gpus)
    most = _busy(found.low or 0.0, deployment, gpus)
    return Capacity(
        arm=arm,
        workload=workload,
        agents_per_gpu=found,
        replicas_at_peak=None if busy is None else busy + deployment.spare_replicas,
        gpus_at_peak=_gpus((fewest, busy, most), deployment, found, each=gpus),
        next_replica_at_agents=_due(found, busy, gpus),
        reason=_reason(found, points),
    )


def _unfilled(points: Sequence[CapacityPoint], limit: CarriedLoad) -> str:
    """Say why trials in which no pool was seen full tell nothing of capacity."""
    if any(each.pool_filled is None for each in points):
        return "KV pool usage was not monitored"
    if limit.high is None:
        return "the KV pool never filled"
    largest = max(each.agents for each in points)
    past = words.quantity(math.floor(min(limit.high + 1, largest)), "agent")
    return f"the KV pool never filled up to where the SLO is missed ({past})"


def capacities(evidence: Evidence, policy: Policy, *, level: float = LEVEL) -> tuple[Capacity, ...]:
    """Return the capacity of every arm, for the mix and for whatever was searched alone.

    Intervals are at *level*.
    """
    tried: dict[str | None, dict[str, list[CapacityPoint]]] = {}
    for each in evidence.capacity:
        if each.turns > 0 or each.trouble is not None:
            by_arm = tried.setdefault(each.workload, {})
            by_arm.setdefault(each.arm, []).append(each)
    fitted = {}
    for workload, points in tried.items():
        slo = policy.slo(workload)
        share = SHARE if slo is None else slo.share
        for arm, limit in limits(points, share=share, level=level).items():
            fitted[arm, workload] = _capacity(
                evidence, arm, workload, points[arm], limit, share=share, level=level
            )
    named = [each.name for each in evidence.workloads]
    # Classes that were searched together have a name of their own.
    together = sorted({each for each in tried if each is not None} - set(named))
    out = []
    for arm in (each.name for each in evidence.arms):
        for workload in (None, *named, *together):
            found = fitted.get((arm, workload))
            if found is not None:
                out.append(found)
    return tuple(out)
