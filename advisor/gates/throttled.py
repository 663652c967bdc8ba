"""A GPU that is slowed by heat or a brake is measured in the arm's place."""

from __future__ import annotations

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "throttled"
MOST = 0.05
"""Share of the time: below it medians and paired means hardly move."""


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm whose GPUs tell, or one for all that they do not; the power limit is how a GPU is meant to work."""
    del policy  # heat is no matter of taste
    if evidence.kind != "measured":
        return ()
    gates = []
    for arm, figures in evidence.server:
        share = figures.throttled_share
        if share is None:
            continue
        fails = share > MOST
        told = f"slowed by heat or a brake for {share:.1%} of the time"
        if figures.power_capped_share:
            told += f", at the power limit for {figures.power_capped_share:.0%}"
        gates.append(
            Gate(
                name=NAME,
                status="fail" if fails else "pass",
                arm=arm,
                message=f"a GPU was {told}: its cooling was measured, not the arm" if fails else f"GPUs were {told}",
                observed=share,
                limit=MOST,
                unit="share",
                spoils=("ttft", "itl", "turn", "capacity") if fails else (),
            )
        )
    unknown = Gate(name=NAME, status="not observed", message="no GPU said whether it was slowed: `gpu_metrics` names an exporter")
    return tuple(gates) or (unknown,)
