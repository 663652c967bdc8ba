"""One length falls far below the others, or the loss grows with length: the pooled figure hides it.

Looked for among all buckets and unadjusted, so a screening:
what the worst bucket proves, the criterion *safe* says.
"""

from advisor import words
from advisor.case import Case
from advisor.evidence import Arm
from advisor.statistics.accuracy import slope_per_doubling
from advisor.steps import Questions
from advisor.verdict import Finding

NEEDS = frozenset({"buckets"})

GROWS = 0.05  # two-sided level of the slope over length


def check(case: Case, arm: Arm) -> Finding | None:
    """Return a significant slope downwards, or a bucket whose interval is below zero."""
    buckets = [each for each in case.buckets if each.arm == arm.name]
    if not buckets:
        return None
    # The surest fall, not the largest: ten items may fall by 20 points and show nothing.
    worst = min(
        buckets, key=lambda each: 1.0 if each.difference.high is None else each.difference.high
    )
    trend = slope_per_doubling(
        [each.context_tokens for each in buckets],
        [each.difference.value for each in buckets],
        [each.difference.n for each in buckets],
    )
    falls = trend is not None and trend[0] < 0 and trend[1] < GROWS
    if not falls and not worst.difference.is_below(0.0):
        return None
    told = (
        f"Worst bucket: {words.bucket(worst.task, worst.context_tokens)}, "
        f"{words.points(worst.difference)}."
    )
    if trend is not None and falls:
        told += (
            f" The loss grows by {-100 * trend[0]:.1f} pp each time the context doubles (p "
            f"{trend[1]:.3f}, screening)."
        )
    pooled = case.accuracy_of(arm.name, None)
    good = None if pooled is None else pooled.good_to
    remedy = None
    if good is not None:
        up_to = words.length(good.context_tokens)
        told += f" Up to {up_to} no loss is shown: {words.points(good.difference)}."
        cap = f"cap the context at {up_to} (--max-model-len {good.context_tokens:.0f})"
        remedy = f"{cap}, or route longer calls to {case.evidence.reference}"
    return Finding(
        kind="opposes",
        context_tokens=worst.context_tokens,
        message=told,
        remedy=remedy,
        estimates=(worst.difference,),
        next_step=Questions(lengths=(round(worst.context_tokens),)),
        leg="safe",
        screening=True,
    )
