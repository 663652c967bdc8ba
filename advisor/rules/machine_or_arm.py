"""Two machines that never changed places: a difference
of a few percent may be theirs, as it may be one start's.
"""

from advisor.case import Case
from advisor.evidence import Arm
from advisor.legs.speed import is_confounded, swap
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.deployment.machines", "speeds"})


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that the arm and its machine cannot be separated."""
    speed = case.speed(arm.name, None)
    if not is_confounded(case, arm.name):
        return None
    return Finding(
        kind="opposes",
        message=(
            f"{arm.name} and {case.evidence.reference} ran on different machines and never "
            "changed places: what a machine adds counts as "
            "part of a start, and was not measured."
        ),
        flips="arms that change machines half way",
        next_step=swap(0 if speed is None else speed.change.pairs),
        leg="validity",
    )
