"""The slowest turns get surely slower by more than a tenth: a faster
mean is no use to a user who waits for them, service level or not.

p99 speaks from 299 independent turns on, p95 from 59;
with fewer the tail is not known, and vetoes nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from advisor import words
from advisor.case import Case
from advisor.legs.capacity import capacity_leg
from advisor.legs.gpus import gpus_leg
from advisor.policy import Metric
from advisor.statistics.quantiles import Tail, quantile, tails
from advisor.verdict import Finding

NEEDS = frozenset({"speeds"})

# times as long: a tail scatters more than a mean, and a tenth is what capacity counts too
WORSE = 1.10
METRICS: tuple[Metric, ...] = ("turn_ms", "ttft_ms")


def _tails(
    case: Case, arm: str, workload: str, metric: Metric
) -> tuple[tuple[Tail, ...], float] | None:
    sides = case.evidence.sides(workload, arm)
    if sides is None or case.speed(arm, workload, metric) is None:
        return None
    theirs, mine = sides
    return tails(theirs.lasting(metric), theirs.pair, mine.lasting(metric), mine.pair)


def _is_held(case: Case, arm: str, workload: str, metric: Metric) -> bool:
    """Say whether a service level of the user's own covers this, and the arm surely holds it."""
    slo, calls = case.policy.slo(workload), case.evidence.calls(workload, arm)
    limit = None if slo is None else slo.limit(metric)
    if slo is None or limit is None or calls is None:
        return False
    found = quantile(calls.lasting(metric), calls.session, slo.share, unit="ms")
    return found is not None and found.is_below(limit)


def _is_fact(case: Case, arm: str, workload: str, metric: Metric) -> bool:
    """Say whether longer turns are no harm: GPUs decide, or
    whether the level is met at all, and no limit is on them.
    """
    slo, theirs = case.policy.slo(workload), case.service_level(case.evidence.reference)
    if theirs is not None and theirs.state == "no":
        return True
    if slo is None or slo.limit(metric) is not None:
        return False
    if case.decided_by != "gpus":
        return False
    return gpus_leg(case, arm, workload, capacity_leg(case, arm, workload)).state == "yes"


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding an arm and class whose tail is
    surely longer, and one a class whose tail is not known.
    """
    arms = [each.name for each in case.evidence.challengers]
    workloads = [each.name for each in case.evidence.workloads]
    unknown: dict[str, float] = {}
    for arm, workload, metric in product(arms, workloads, METRICS):
        known = _tails(case, arm, workload, metric)
        if known is None:
            continue
        bounded, turns = known
        if not bounded:
            unknown[workload] = min(turns, unknown.get(workload, np.inf))
            continue
        level = case.level(arm) / len(bounded) / len(workloads) / len(METRICS)
        surely = [each for each in bounded if each.ratio > WORSE and each.p_longer(WORSE) <= level]
        if not surely or _is_held(case, arm, workload, metric):
            continue
        finding = _longer(surely[0], metric, arm, workload, level=level)
        if _is_fact(case, arm, workload, metric):
            finding = replace(finding, kind="informs", asks_for=None)
        yield finding
    for workload, turns in unknown.items():
        yield _unknown(workload, turns)


def _longer(found: Tail, metric: Metric, arm: str, workload: str, *, level: float) -> Finding:
    quantity = "turn latency" if metric == "turn_ms" else "TTFT"
    name = f"{quantity} p{100 * found.q:.0f}"
    longer = 100 * (found.ratio - 1)
    surely = 100 * (found.least(level) - 1)
    return Finding(
        kind="opposes",
        arm=arm,
        workload=workload,
        message=(
            f"{name[0].upper()}{name[1:]} of {workload} is {longer:.0f}% longer on {arm} "
            f"(at least {surely:.0f}%, by {found.turns:,.0f} independent turns): "
            f"the slowest turns get slower by more than {WORSE - 1:.0%}."
        ),
        flips=f"a limit for {name} of {workload} in the policy (slos) that {arm} stays within",
        leg="pays",
        asks_for="test further",
    )


def _unknown(workload: str, turns: float) -> Finding:
    few = "too few block pairs to count independent turns"
    if turns:
        few = f"{words.quantity(turns, 'independent turn')} so far"
    return Finding(
        kind="informs",
        workload=workload,
        message=f"The tail of {workload} is not known: {few}, where p95 takes 59 independent "
        "turns and p99 takes 299.",
        leg="pays",
    )
