"""A difference counts only above what two equal servers may show; without that control nobody knows how much it is."""

from __future__ import annotations

from advisor import words
from advisor.case import Case
from advisor.legs.speed import cannot_rule_out, more_pairs
from advisor.steps import Control
from advisor.verdict import Finding

NEEDS = frozenset({"speeds"})


def check(case: Case) -> Finding | None:
    """Return the widest floor of the run, or that there is none."""
    floors = [(floor, each) for each in case.speeds if each.change.metric == "turn_ms" and (floor := each.change.floor) is not None]
    if not floors:
        return Finding(
            kind="opposes",
            message="No A/A control: what two equal servers would show here is not known, so a canary has to confirm small gains.",
            next_step=Control(arm=case.evidence.reference),
            leg="validity",
        )
    largest, speed = max(floors, key=lambda each: each[0])
    assert speed.control is not None
    told = f"On {words.scope(speed.change.workload)} {cannot_rule_out(speed.control, largest)} in turn time"
    is_small = largest <= case.policy.min_change
    return Finding(
        kind="informs" if is_small else "opposes",
        message=f"{told}."
        if is_small
        else f"{told}, more than the {case.policy.min_change:.0%} that count: a smaller difference is not told.",
        next_step=None if is_small else more_pairs(case, speed).step,
        leg="validity",
    )
