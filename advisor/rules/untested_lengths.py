"""Part of the load is longer than anything that was asked: garbage there would not have been seen."""

from __future__ import annotations

from advisor import words
from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.statistics.planning import items_needed
from advisor.verdict import Finding, Need

NEEDS = frozenset({"reach.beyond_share"})

PLANNED_DISCORDANCE = 0.10


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding a quantised arm and scope with calls beyond its longest bucket."""
    out = []
    for reach in case.reach:
        if not reach.beyond_share or reach.tested_to is None or not is_quantised(case.evidence.arm(reach.arm)):
            continue
        capped = reach.beyond_share > case.policy.max_untested_share
        items = items_needed(PLANNED_DISCORDANCE, case.policy.accuracy_margin)
        command = case.evaluation(items, to_tokens=reach.longest)
        out.append(
            Finding(
                kind="opposes" if capped else "informs",
                arm=reach.arm,
                workload=reach.workload,
                message=(
                    f"{reach.beyond_share:.1%} of the calls of {words.scope(reach.workload)} are longer than "
                    f"{words.length(reach.tested_to)}, "
                    f"up to {words.length(reach.longest or 0.0)}: no answer was checked there. Keep them on {case.evidence.reference}, "
                    "cap them, "
                    "or ask there."
                ),
                next_command=command,
                leg="safe",
                need=Need(what=f"paired answers on {reach.arm} up to {words.length(reach.longest or 0.0)}", pairs=items, command=command),
            )
        )
    return tuple(out)
