"""Two machines that never changed places: a difference of a few percent may be theirs."""

from __future__ import annotations

from advisor.case import Case
from advisor.evidence import Arm
from advisor.legs.speed import allowance, swap
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.deployment.machines", "speeds"})


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that the arm cannot be told from its machine."""
    allowed, speed = allowance(case, arm.name), case.speed(arm.name, None)
    if not allowed:
        return None
    return Finding(
        kind="opposes",
        message=(
            f"{arm.name} and {case.evidence.reference} ran on different machines and were not swapped: cannot tell machine from arm "
            f"below {allowed:.0%}."
        ),
        flips="arms that change machines half way, or a control across machines",
        next_step=swap(0 if speed is None else speed.change.pairs),
        leg="validity",
    )
