"""Is the arm safe? Paired answers at the workload's own lengths, not worse by the margin, pooled and in every bucket."""

from __future__ import annotations

from advisor import words
from advisor.case import Case
from advisor.legs import machines
from advisor.legs.tested import Tested
from advisor.statistics.planning import items_needed
from advisor.verdict import Leg, LegState, Need

PLANNED_DISCORDANCE = 0.10  # share of items that differ, before any were asked


def _untested(case: Case, arm: str, workload: str | None) -> Tested:
    margin, spoiled = case.policy.accuracy_margin, case.spoiled("accuracy", arm, workload)
    items = items_needed(PLANNED_DISCORDANCE, margin)
    command = case.evaluation(items, to_tokens=case.reach_of(arm, workload).longest)
    reason = "no paired answers at these lengths" if spoiled is None else f"{spoiled.name}: {spoiled.message}"
    need = Need(what=f"paired answers on {arm}", pairs=items, command=command)
    return Tested(leg=Leg(name="safe", state="untested", margin=margin, reason=reason, needs=(need,)))


def safe_leg(case: Case, arm: str, workload: str | None) -> Tested:
    """Return whether answers are shown to be as good, shown to be worse, or neither."""
    policy, margin = case.policy, case.policy.accuracy_margin
    if machines.same_numbers(case, arm):
        reason = "same KV dtype and kernel: nothing that touches the answers changed"
        return Tested(leg=Leg(name="safe", state="yes", margin=margin, reason=reason))
    found, reach = case.accuracy_of(arm, workload), case.reach_of(arm, workload)
    if found is None or case.spoiled("accuracy", arm, workload) is not None:
        return _untested(case, arm, workload)
    told = f"accuracy {words.points(found.estimate)} up to {words.length(found.tested_to)}, margin {100 * margin:.0f} pp"
    more = max(1, items_needed(found.discordance, margin) - found.estimate.n)
    needs = (Need(what=f"paired answers on {arm}", pairs=more, command=case.evaluation(more, to_tokens=found.tested_to)),)
    p_for, p_against = found.p_not_worse, min(1.0, 2 * min(found.p_worse, found.worst_p))  # pooled, or in one bucket: two looks

    def tested(state: LegState, reason: str, settles: tuple[Need, ...] = ()) -> Tested:
        leg = Leg(name="safe", state=state, estimate=found.estimate, margin=margin, reason=reason, needs=settles)
        return Tested(leg=leg, p_for=p_for, p_against=p_against, if_unclear=needs)

    if p_against <= policy.alpha / 2:
        worst = f"{words.bucket(found.worst.task, found.worst.context_tokens)} {words.points(found.worst.difference)}"
        return tested("no", told if found.p_worse <= found.worst_p else f"{told}; {worst}")
    if p_for > policy.alpha / 2:
        return tested("unclear", told, needs)
    if reach.beyond_share is not None and reach.beyond_share > policy.max_untested_share:
        items = items_needed(max(found.discordance, margin), margin)
        longer = Need(
            what=f"paired answers on {arm} beyond {words.length(found.tested_to)}",
            pairs=items,
            command=case.evaluation(items, to_tokens=reach.longest),
        )
        return tested("unclear", f"{told}; {reach.beyond_share:.0%} of the calls are longer than that", (longer,))
    return tested("yes", told)
