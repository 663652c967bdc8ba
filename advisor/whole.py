"""Build the case: run every gate and every computation once, in the order in which they need each other."""

from collections.abc import Sequence
from dataclasses import replace

from advisor import gates, plugins
from advisor.assess import accuracy, capacity, lines, reach, room, speed
from advisor.case import Case, rivals
from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate, Spoiled


def gate_results(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return the answers of all gates, failures first."""
    found = [gate for module in plugins.modules(gates) for gate in module.check(evidence, policy)]
    order = {"fail": 0, "not observed": 1, "pass": 2}
    return tuple(sorted(found, key=lambda gate: order[gate.status]))


def _unspoiled(evidence: Evidence, seen: Sequence[Gate], what: Spoiled) -> Evidence:
    """Return *evidence* without the sweeps of arms that failed a gate."""
    failed = {gate.arm for gate in seen if gate.status == "fail" and what in gate.spoils}
    return replace(evidence, sweeps=tuple(sweep for sweep in evidence.sweeps if sweep.arm not in failed))


def assess(evidence: Evidence, policy: Policy) -> Case:
    """Return the case that *evidence* makes under *policy*."""
    shares = reach.shares(evidence)
    gates_seen = gate_results(evidence, policy)
    decoded, prefilled = _unspoiled(evidence, gates_seen, "decode sweep"), _unspoiled(evidence, gates_seen, "prefill sweep")
    judged, speeds = accuracy.pooled(evidence, policy), speed.speeds(evidence, shares, policy)
    # Any arm may be chosen, and for its speed or for its capacity: the error is shared. A search is looked at once.
    level = 1 - policy.alpha / rivals(evidence) / (2 if speeds else 1)
    return Case(
        evidence=evidence,
        policy=policy,
        shares=shares,
        gates=gates_seen,
        speeds=speeds,
        itl=lines.itl_lines(decoded),
        ttft=lines.ttft_curves(prefilled),
        break_even=lines.break_evens(decoded, shares, policy),
        buckets=accuracy.bucket_results(evidence, policy),
        accuracy=judged,
        same_answers=accuracy.controls(evidence, policy),
        capacity=capacity.capacities(evidence, policy, level=level),
        rooms=room.rooms(evidence, policy),
        reach=reach.reaches(evidence, shares, judged),
    )
