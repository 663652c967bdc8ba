"""Two machines that never changed places: a difference of a few percent may be theirs."""

from __future__ import annotations

from advisor.case import Case
from advisor.legs.machines import allowance, swap
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.deployment.machines", "speeds"})


def _pairs(case: Case, arm: str) -> int:
    speed = case.speed(arm, None)
    return 0 if speed is None else speed.change.pairs


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm that cannot be told from its machine."""
    return tuple(
        Finding(
            kind="opposes",
            arm=arm.name,
            message=(
                f"{arm.name} and {case.evidence.reference} ran on different machines and were not swapped: cannot tell machine from arm "
                "below "
                f"{allowance(case, arm.name):.0%}."
            ),
            flips="arms that change machines half way, or a control across machines",
            next_step=swap(_pairs(case, arm.name)),
            leg="validity",
        )
        for arm in case.evidence.challengers
        if allowance(case, arm.name) > 0
    )
