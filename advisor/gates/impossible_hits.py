"""No cache hit where none is possible: salted blocks share nothing, and no cache beats one without bounds."""

from __future__ import annotations

from advisor.evidence import Evidence, Telemetry
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "cache hits"
TOLERANCE = 0.01  # a block boundary more or less


def _gate(arm: str, workload: str | None, figures: Telemetry) -> Gate | None:
    if figures.impossible_hits is not None and figures.impossible_hits > 0:
        return Gate(
            name=NAME,
            status="fail",
            arm=arm,
            workload=workload,
            message=f"{figures.impossible_hits:,.0f} prompt tokens hit the cache where the salt rules that out: blocks share a salt",
            observed=figures.impossible_hits,
            limit=0.0,
            unit="tokens",
            spoils=("hits", "ttft", "turn", "capacity"),
        )
    if figures.hit_rate is None or figures.ideal_hit_rate is None:
        if figures.impossible_hits is None:
            return None
        return Gate(
            name=NAME, status="pass", arm=arm, workload=workload, message="no hit across salts", observed=0.0, limit=0.0, unit="tokens"
        )
    good = figures.hit_rate <= figures.ideal_hit_rate + TOLERANCE
    told = f"hit rate {figures.hit_rate:.0%}, {figures.ideal_hit_rate:.0%} with a cache without bounds"
    return Gate(
        name=NAME,
        status="pass" if good else "fail",
        arm=arm,
        workload=workload,
        message=told if good else f"{told}: prompts repeat that the trace keeps apart",
        observed=figures.hit_rate,
        limit=figures.ideal_hit_rate,
        spoils=() if good else ("hits", "ttft", "turn", "capacity"),
    )


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm and workload with hit figures."""
    del policy  # arithmetic is not negotiable
    seen: list[tuple[str, str | None, Telemetry]] = [(arm, None, figures) for arm, figures in evidence.server]
    seen += [(each.arm, each.workload, each.telemetry) for each in evidence.observations if each.telemetry is not None]
    found = (_gate(*each) for each in seen)
    return tuple(gate for gate in found if gate is not None)
