"""A difference counts only above what two equal servers show; without that control nobody knows how much it is."""

from __future__ import annotations

from advisor import commands
from advisor.case import Case
from advisor.verdict import Finding

NEEDS = frozenset({"speeds"})


def check(case: Case) -> Finding | None:
    """Return the floor of the run, or that there is none."""
    floors = [speed.change.floor for speed in case.speeds if speed.change.metric == "turn_ms" and speed.change.floor is not None]
    if not floors:
        return Finding(
            kind="opposes",
            message="No A/A control: what two equal servers would show here is not known, so a canary has to confirm small gains.",
            next_command=commands.control(case.evidence.reference),
            leg="validity",
        )
    largest, smallest_change = max(floors), case.policy.min_change
    return Finding(
        kind="informs" if largest <= smallest_change else "opposes",
        message=f"Two equal sides differ by up to {largest:.1%} in turn time here"
        + ("." if largest <= smallest_change else f", more than the {smallest_change:.0%} that count: the floor decides."),
        next_command=None if largest <= smallest_change else commands.control(case.evidence.reference),
        leg="validity",
    )
