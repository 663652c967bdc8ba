"""A segment that changes between turns breaks the cached prefix: everything behind it is computed again, on every arm."""

from __future__ import annotations

from advisor import words
from advisor.case import Case
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.prefix_breaks"})


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding a break, the dearest first."""
    breaks = sorted(case.evidence.prefix_breaks, key=lambda each: -each.calls * each.reprefilled_tokens)
    return tuple(
        Finding(
            kind="informs",
            arm=each.arm,
            workload=each.workload,
            message=(
                f"Segment {each.segment!r}, {words.tokens(each.position_tokens)} tokens into the prompt of {each.workload}, changes "
                "between turns: "
                f"{words.tokens(each.reprefilled_tokens)} tokens are computed again in each of {each.calls} calls. Move what changes to "
                "the end; "
                "that gains more than any cache dtype."
            ),
            leg="pays",
        )
        for each in breaks
    )
