"""Both arms have to finish the same turns: the arm that drops its long ones looks faster."""

from __future__ import annotations

from advisor.evidence import Calls, Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "dropped turns"


def _dropped(calls: Calls) -> float:
    return 1.0 - float(calls.ok.mean())


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate a challenger and workload."""
    gates = []
    for workload in evidence.workloads:
        reference = evidence.calls(workload.name, evidence.reference)
        for arm in evidence.challengers:
            calls = evidence.calls(workload.name, arm.name)
            if calls is None or reference is None:
                continue
            mine, theirs = _dropped(calls), _dropped(reference)
            good = abs(mine - theirs) <= policy.max_dropped_difference
            told = f"{mine:.1%} of the turns dropped, {theirs:.1%} on {evidence.reference}"
            gates.append(
                Gate(
                    name=NAME,
                    status="pass" if good else "fail",
                    arm=arm.name,
                    workload=workload.name,
                    message=told if good else f"{told}: what is left cannot be compared",
                    observed=mine - theirs,
                    limit=policy.max_dropped_difference,
                    spoils=() if good else ("ttft", "itl", "turn", "capacity"),
                )
            )
    return tuple(gates)
