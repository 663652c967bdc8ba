"""Both arms have to finish the same turns, and nearly all of them: those that are dropped are the long ones, and the rest looks faster."""

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
            differs, many = abs(mine - theirs) > policy.max_dropped_difference, max(mine, theirs) > policy.max_dropped_share
            told = f"{mine:.1%} of the turns dropped, {theirs:.1%} on {evidence.reference}"
            why = ": what is left cannot be compared" if differs else ": what is left are the turns that are quick enough" if many else ""
            gates.append(
                Gate(
                    name=NAME,
                    status="fail" if differs or many else "pass",
                    arm=arm.name,
                    workload=workload.name,
                    message=f"{told}{why}",
                    observed=max(mine, theirs) if many and not differs else mine - theirs,
                    limit=policy.max_dropped_share if many and not differs else policy.max_dropped_difference,
                    spoils=("ttft", "itl", "turn", "capacity") if differs or many else (),
                )
            )
    return tuple(gates)
