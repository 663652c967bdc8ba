"""Image tokens fill the cache: text tasks say nothing about what quantisation does to them."""

from __future__ import annotations

from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.statistics.planning import PLANNED_DISCORDANCE, items_needed
from advisor.verdict import Finding, Need

NEEDS = frozenset({"evidence.workloads.image_tokens_share"})

NOTABLE = 0.10  # share of prompt tokens


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding a quantised arm and image-heavy workload without answers of its own."""
    out = []
    for workload in case.evidence.workloads:
        if workload.image_tokens_share is None or workload.image_tokens_share < NOTABLE:
            continue
        for arm in case.evidence.challengers:
            own = any(each.arm == arm.name and each.workload == workload.name for each in case.evidence.accuracy)
            if own or not is_quantised(arm):
                continue
            items = items_needed(PLANNED_DISCORDANCE, case.policy.accuracy_margin)
            out.append(
                Finding(
                    kind="opposes",
                    arm=arm.name,
                    workload=workload.name,
                    message=(
                        f"{workload.image_tokens_share:.0%} of the prompt tokens of {workload.name} are images, and no task asked about "
                        "images."
                    ),
                    flips="paired answers about images",
                    next_command=case.evaluation(items),
                    leg="safe",
                    asks_for="test further",
                    need=Need(what=f"paired answers about images on {arm.name}", pairs=items, command=case.evaluation(items)),
                )
            )
    return tuple(out)
