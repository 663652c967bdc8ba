"""Answers get worse by more than the margin: no speed is worth it."""

from __future__ import annotations

from advisor import words
from advisor.case import Case
from advisor.verdict import Finding, Inequality

NEEDS = frozenset({"accuracy"})


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm whose pooled answers, or those of one bucket, are shown to be worse by the margin."""
    margin, half = case.policy.accuracy_margin, case.policy.alpha / 2
    out = []
    for found in case.accuracy:
        if found.workload is not None or min(found.p_worse, found.worst_p) > half / 2:
            continue
        pooled = found.p_worse <= found.worst_p
        shown = found.estimate if pooled else found.worst.difference
        where = f"all {found.estimate.n} pairs" if pooled else words.bucket(found.worst.task, found.worst.context_tokens)
        out.append(
            Finding(
                kind="blocks",
                arm=found.arm,
                message=f"Accuracy falls by {words.points(shown)} in {where}, more than the margin of {100 * margin:.0f} pp.",
                estimates=(shown,),
                inequality=Inequality(
                    left=f"accuracy of {found.arm} - reference", observed=shown, relation="<", right=f"-{100 * margin:.0f} pp", holds=True
                ),
                flips="calibrated scales, or a kernel that accumulates in higher precision: measure again",
                leg="safe",
                asks_for="avoid",
            )
        )
    return tuple(out)
