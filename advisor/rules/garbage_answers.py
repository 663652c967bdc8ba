"""Answers that are no language: repetition, non-printing characters, an early end.

A broken cache does this before accuracy falls.
"""

from advisor import words
from advisor.case import Case
from advisor.evidence import AccuracyBucket, Arm
from advisor.statistics.accuracy import fisher
from advisor.steps import Features
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.accuracy.garbage", "evidence.accuracy.reference_garbage"})


def _p_more(bucket: AccuracyBucket) -> float:
    """Return Fisher's one-sided p-value that the
    arm gives garbage more often than the reference.
    """
    if bucket.garbage is None or bucket.reference_garbage is None or not bucket.items:
        return 1.0
    return fisher(bucket.garbage, bucket.reference_garbage, items=bucket.items)


def check(case: Case, arm: Arm) -> Finding | None:
    """Return the arm's worst bucket where it surely holds more
    garbage than the reference (Bonferroni over its buckets).
    """
    buckets = [each for each in case.evidence.accuracy if each.arm == arm.name]
    worst = min(buckets, key=_p_more, default=None)
    if worst is None or _p_more(worst) * len(buckets) > case.policy.alpha / 2:
        return None
    return Finding(
        kind="blocks",
        context_tokens=worst.context_tokens,
        message=(
            f"{worst.garbage} of {worst.items} answers to "
            f"{words.bucket(worst.task, worst.context_tokens)} are garbage on {arm.name}, "
            f"{worst.reference_garbage} on {case.evidence.reference}."
        ),
        flips="a version, kernel or flag under which the garbage is gone",
        next_step=Features(),
        leg="safe",
        asks_for="avoid",
    )
