"""One length falls far below the others, or the loss grows with length: the pooled figure hides it.

Looked for among all buckets and unadjusted, so a screening:
what the worst bucket proves, the criterion *safe* says.
"""

from collections.abc import Sequence

from advisor import words
from advisor.case import Case
from advisor.evidence import Arm
from advisor.statistics.accuracy import slope_per_doubling
from advisor.steps import Questions
from advisor.verdict import BucketResult, Finding

NEEDS = frozenset({"buckets"})

GROWS = 0.05  # two-sided level of the slope over length


def _remedy(good: BucketResult, reference: str) -> str:
    tokens = good.context_tokens
    cap = f"cap the context at {words.length(tokens)} (--max-model-len {tokens:.0f})"
    return f"{cap}, or route longer calls to {reference}"


def check(case: Case, arm: Arm) -> Finding | None:
    """Return a significant slope downwards, or a bucket whose interval is below zero."""
    buckets = [each for each in case.buckets if each.arm == arm.name]
    if not buckets:
        return None
    worst = min(buckets, key=_highest)
    trend = _downward_trend(buckets)
    if trend is None and not worst.difference.is_below(0.0):
        return None
    pooled = case.accuracy_of(arm.name, None)
    good = None if pooled is None else pooled.good_to
    return Finding(
        kind="opposes",
        context_tokens=worst.context_tokens,
        message=_message(worst, trend, good),
        remedy=None if good is None else _remedy(good, case.evidence.reference),
        estimates=(worst.difference,),
        next_step=Questions(lengths=(round(worst.context_tokens),)),
        leg="safe",
        screening=True,
    )


def _highest(bucket: BucketResult) -> float:
    """Return the upper end of a fall: the surest, not the largest, since ten items
    may fall by 20 points and show nothing.
    """
    high = bucket.difference.high
    return 1.0 if high is None else high


def _downward_trend(buckets: Sequence[BucketResult]) -> tuple[float, float] | None:
    """Return the slope per doubling of length and its p-value where the loss grows."""
    trend = slope_per_doubling(
        [each.context_tokens for each in buckets],
        [each.difference.value for each in buckets],
        [each.difference.n for each in buckets],
    )
    if trend is None:
        return None
    slope, p = trend
    return trend if slope < 0 and p < GROWS else None


def _message(
    worst: BucketResult, trend: tuple[float, float] | None, good: BucketResult | None
) -> str:
    bucket = words.bucket(worst.task, worst.context_tokens)
    parts = [f"The worst bucket is {bucket}: {words.points(worst.difference)}."]
    if trend is not None:
        slope, p = trend
        parts.append(
            f"The loss grows by {-100 * slope:.1f} pp each time the context doubles (p "
            f"{p:.3f}, screening)."
        )
    if good is not None:
        length = words.length(good.context_tokens)
        parts.append(f"Up to {length} no loss is shown: {words.points(good.difference)}.")
    return " ".join(parts)
