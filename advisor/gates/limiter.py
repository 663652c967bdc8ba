"""Where calls are answered 429, the pace that was measured is a limiter's, not the server's."""

from __future__ import annotations

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "limiter"
MOST = 0.01
"""Share of calls: below it quantiles up to p99 are the server's own."""


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm that was limited at all."""
    del policy  # one call in a hundred moves p99, whatever the policy
    gates = []
    for health in evidence.health:
        share = health.limited_share
        if not share:
            continue
        fails = share > MOST
        told = f"{share:.1%} of the attempts were answered 429"
        gates.append(
            Gate(
                name=NAME,
                status="fail" if fails else "pass",
                arm=health.arm,
                message=f"{told}: you measured the limiter; raise its limit, or lower the load" if fails else told,
                observed=share,
                limit=MOST,
                unit="share",
                spoils=("ttft", "itl", "turn", "capacity") if fails else (),
            )
        )
    return tuple(gates)
