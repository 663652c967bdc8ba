"""Build the case: run every gate and every computation once, in the order in which they need each other."""

from __future__ import annotations

from advisor import gates, plugins
from advisor.assess import accuracy, capacity, lines, mix, reach, room, speed
from advisor.case import Case
from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate


def gate_results(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return the answers of all gates, failures first."""
    found = [gate for module in plugins.modules(gates) for gate in module.check(evidence, policy)]
    order = {"fail": 0, "not observed": 1, "pass": 2}
    return tuple(sorted(found, key=lambda gate: order[gate.status]))


def assess(evidence: Evidence, policy: Policy) -> Case:
    """Return the case that *evidence* makes under *policy*."""
    shares = mix.shares(evidence)
    judged = accuracy.pooled(evidence, policy)
    return Case(
        evidence=evidence,
        policy=policy,
        shares=shares,
        gates=gate_results(evidence, policy),
        speeds=speed.speeds(evidence, shares),
        itl=lines.itl_lines(evidence),
        ttft=lines.ttft_curves(evidence),
        break_even=lines.break_evens(evidence, shares),
        buckets=accuracy.bucket_results(evidence, policy),
        accuracy=judged,
        capacity=capacity.capacities(evidence, policy),
        rooms=room.rooms(evidence, policy),
        reach=reach.reaches(evidence, shares, judged),
    )
