"""Turn the answers of buckets into paired columns, and test them against the margin.

A bucket holds scores, or counts of right and wrong answers only; either becomes one row an answer,
with its context as the cluster, because answers behind one context share its odd text. Right and
wrong answers are then counted (Tango's interval), graded ones averaged by context.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.estimate import Estimate, present
from advisor.evidence import AccuracyBucket, Floats, Ints
from advisor.policy import Policy
from advisor.statistics import accuracy
from advisor.statistics.groups import group_numbers

# margins of right answers; below, half of them could be lost inside the margin
LEAST_IN_A_BUCKET = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedScores:
    """Hold paired scores as equally long columns; rows of one context have one cluster number."""

    reference: Floats
    arm: Floats
    clusters: Ints

    @property
    def size(self) -> int:
        """Return the number of answers."""
        return self.reference.size

    @property
    def change(self) -> Floats:
        """Return the difference of each pair of scores, arm minus reference."""
        return self.arm - self.reference

    @property
    def reference_mean(self) -> float:
        """Return the share that the reference has right."""
        return float(self.reference.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginTest:
    """Hold a difference of answers, and the p-values of both claims about the margin."""

    difference: Estimate
    p_not_worse: float
    p_worse: float
    reference_mean: float
    """Share that the reference has right, weighted as the difference is."""


def is_binary(bucket: AccuracyBucket) -> bool:
    """Say whether answers are right or wrong and nothing between, so that counts are enough."""
    for scores in present((bucket.reference_scores, bucket.arm_scores)):
        is_right_or_wrong = np.isin(scores, (0.0, 1.0))
        if not is_right_or_wrong.all():
            return False
    return True


def _scores_of(bucket: AccuracyBucket) -> tuple[Floats, Floats]:
    """Return the scores of reference and arm; right answers that were only counted are ones."""
    if bucket.reference_scores is not None and bucket.arm_scores is not None:
        return bucket.reference_scores, bucket.arm_scores
    items = (bucket.both, bucket.reference_only, bucket.arm_only, bucket.neither)
    reference = np.repeat([1.0, 1.0, 0.0, 0.0], items)
    arm = np.repeat([1.0, 0.0, 1.0, 0.0], items)
    return reference, arm


def _clusters_of(bucket: AccuracyBucket, size: int) -> Ints:
    """Return the number of each answer's context, from 0; each its own where none are known."""
    given = bucket.clusters
    if given is None or given.size != size:
        return np.arange(size, dtype=np.int64)
    return group_numbers(given)


def paired_scores(buckets: Sequence[AccuracyBucket]) -> PairedScores:
    """Return the scores of all answers, bucket after bucket; buckets share no context."""
    reference: list[Floats] = []
    arm: list[Floats] = []
    clusters: list[Ints] = []
    for number, bucket in enumerate(buckets):
        theirs, ours = _scores_of(bucket)
        reference.append(theirs)
        arm.append(ours)
        clusters.append(_clusters_of(bucket, theirs.size) + (number << 32))
    return PairedScores(
        reference=np.concatenate(reference),
        arm=np.concatenate(arm),
        clusters=np.concatenate(clusters),
    )


def _weights(
    buckets: Sequence[AccuracyBucket], shares: Mapping[float, float] | None
) -> Floats | None:
    """Return what each row weighs, in the order of `paired_scores`; None where all weigh alike.

    *shares* are those that each length has of the whole; the rows of a length share its own.
    """
    if shares is None:
        return None
    rows_of = [_scores_of(each)[0].size for each in buckets]
    rows_at = Counter[float]()
    for bucket, rows in zip(buckets, rows_of, strict=True):
        rows_at[bucket.context_tokens] += rows
    weights = []
    for bucket in buckets:
        length = bucket.context_tokens
        weights.append(shares[length] / max(1, rows_at[length]))
    weight_of_row = np.repeat(weights, rows_of)
    return weight_of_row if weight_of_row.sum() > 0 else None


def margin_test(
    buckets: Sequence[AccuracyBucket],
    policy: Policy,
    one_sided: float,
    shares: Mapping[float, float] | None = None,
) -> MarginTest | None:
    """Compare answers with the margin; None without answers, or with too few contexts.

    The interval of the difference is at the *one_sided* level. *shares* are those of the user's
    calls that each length represents.
    """
    margin = policy.accuracy_margin
    level = 1 - 2 * one_sided
    scores = paired_scores(buckets)
    if not scores.size:
        return None
    weights = _weights(buckets, shares)
    reference_mean = float(np.average(scores.reference, weights=weights))
    if all(map(is_binary, buckets)):
        counts = accuracy.counts(scores.change, scores.clusters, weights)
        return MarginTest(
            difference=accuracy.tango(counts, level=level),
            p_not_worse=accuracy.p_not_worse(counts, margin=margin),
            p_worse=accuracy.p_worse(counts, margin=margin),
            reference_mean=reference_mean,
        )
    mean = accuracy.mean_difference(scores.reference, scores.arm, scores.clusters, weights)
    if mean is None:
        return None
    difference = mean.estimate(
        unit="share", method="paired graded scores, contexts as clusters", level=level
    )
    return MarginTest(
        difference=difference,
        p_not_worse=mean.p_above(-margin),
        p_worse=mean.p_below(-margin),
        reference_mean=reference_mean,
    )


def has_answers(bucket: AccuracyBucket) -> bool:
    """Say whether a bucket holds any answer, counted or graded."""
    if bucket.items > 0:
        return True
    graded = bucket.reference_scores
    return graded is not None and graded.size > 0


def telling(buckets: tuple[AccuracyBucket, ...], policy: Policy) -> tuple[AccuracyBucket, ...]:
    """Return the buckets that can show a loss.

    The others count for nothing, and what they cover is untested.
    """
    least = LEAST_IN_A_BUCKET * policy.accuracy_margin
    out = []
    for each in buckets:
        right = each.reference_right
        if right is not None and right >= least:
            out.append(each)
    return tuple(out)
