"""Judge paired answers: by bucket, and pooled over the lengths that a workload really has."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.assess import reach
from advisor.case import Accuracy, answer_level, rivals, weighty
from advisor.estimate import Estimate
from advisor.evidence import AccuracyBucket, Evidence, Floats, Ints
from advisor.policy import Policy
from advisor.statistics import accuracy, planning
from advisor.verdict import BucketResult

COLLAPSED = 0.5  # of the right answers: scales that are off lose points, a broken kernel loses most
LEAST_IN_A_BUCKET = 2.0  # margins; below, half of all it can do could be lost inside the margin


def _is_binary(bucket: AccuracyBucket) -> bool:
    """Say whether answers are right or wrong and nothing between, so that counts tell all."""
    scores = (bucket.reference_scores, bucket.arm_scores)
    return all(each is None or bool(np.isin(each, (0.0, 1.0)).all()) for each in scores)


def _rows(buckets: list[AccuracyBucket]) -> tuple[Floats, Floats, Ints]:
    """Return reference scores, arm scores and clusters of all rows; counted buckets enter as zeros and ones."""
    reference: list[Floats] = []
    arm: list[Floats] = []
    clusters: list[Ints] = []
    for index, each in enumerate(buckets):
        if each.reference_scores is not None and each.arm_scores is not None:
            reference.append(each.reference_scores)
            arm.append(each.arm_scores)
        else:
            counts = (each.both, each.reference_only, each.arm_only, each.neither)
            reference.append(np.repeat([1.0, 1.0, 0.0, 0.0], counts))
            arm.append(np.repeat([1.0, 0.0, 1.0, 0.0], counts))
        size = reference[-1].size
        given = each.clusters if each.clusters is not None and each.clusters.size == size else np.arange(size)
        own = np.unique(given, return_inverse=True)[1]
        clusters.append(own.astype(np.int64) + (index << 32))
    return np.concatenate(reference), np.concatenate(arm), np.concatenate(clusters)


def _judged(buckets: list[AccuracyBucket], policy: Policy, one_sided: float) -> tuple[Estimate, float, float] | None:
    """Return the difference, with an interval at this *one-sided* level, and the p-values of "not worse" and of "worse" by the margin."""
    margin, level = policy.accuracy_margin, 1 - 2 * one_sided
    reference, arm, clusters = _rows(buckets)
    if not reference.size:
        return None
    if all(_is_binary(each) for each in buckets):
        difference = arm - reference
        effect = accuracy.design_effect(difference, clusters)
        lost, won, n = float(np.sum(difference < 0)) / effect, float(np.sum(difference > 0)) / effect, difference.size / effect
        contexts = np.unique(clusters).size
        df = contexts - 1 if contexts < difference.size else None
        return (
            accuracy.tango(reference_only=lost, arm_only=won, n=n, level=level, df=df),
            accuracy.p_not_worse(reference_only=lost, arm_only=won, n=n, margin=margin, df=df),
            accuracy.p_worse(reference_only=lost, arm_only=won, n=n, margin=margin, df=df),
        )
    found = accuracy.graded(reference, arm, clusters)
    if found is None:
        return None
    shown = found.estimate(unit="share", method="paired graded scores, contexts as clusters", level=level)
    return shown, found.p_above(-margin), found.p_below(-margin)


def _changed_p(bucket: AccuracyBucket) -> float | None:
    """Return exact McNemar's p-value where items are right or wrong and independent."""
    _, _, clusters = _rows([bucket])
    if not _is_binary(bucket) or np.unique(clusters).size < clusters.size:
        return None
    return accuracy.mcnemar(reference_only=bucket.reference_only, arm_only=bucket.arm_only)


def _result(bucket: AccuracyBucket, difference: Estimate) -> BucketResult:
    return BucketResult(
        arm=bucket.arm,
        task=bucket.task,
        context_tokens=bucket.context_tokens,
        difference=difference,
        reference=float(_rows([bucket])[0].mean()),
        changed_p=_changed_p(bucket),
    )


def correlation(bucket: AccuracyBucket) -> float:
    """Return how much the differences of one context resemble each other: 0 where they are as those of several contexts."""
    reference, arm, clusters = _rows([bucket])
    contexts = np.unique(clusters).size
    if contexts < accuracy.MIN_CLUSTERS or contexts == reference.size or not np.any(arm != reference):
        return 0.0
    return max(0.0, (accuracy.design_effect(arm - reference, clusters) - 1) / (reference.size / contexts - 1))


def _scores(bucket: AccuracyBucket) -> bool:
    return bucket.items > 0 or (bucket.reference_scores is not None and bucket.reference_scores.size > 0)


def bucket_results(evidence: Evidence, policy: Policy) -> tuple[BucketResult, ...]:
    """Return the paired difference of every bucket with answers."""
    level = answer_level(evidence, policy)
    judged = ((each, _judged([each], policy, level)) for each in evidence.accuracy if _scores(each))
    return tuple(_result(bucket, found[0]) for bucket, found in judged if found is not None)


def _own(buckets: Sequence[AccuracyBucket], workload: str, between: tuple[float, float] | None) -> list[AccuracyBucket]:
    """Return the buckets that speak about *workload*: its own or everybody's, at the lengths at which its calls usually are."""
    mine = [each for each in buckets if each.workload in (None, workload)]
    lengths = reach.own((each.context_tokens for each in mine), between)
    return [each for each in mine if each.context_tokens in lengths]


def pooled(evidence: Evidence, policy: Policy) -> tuple[Accuracy, ...]:
    """Return the pooled accuracy of every challenger for each workload, and for the server over all that its weighty workloads need."""
    between = {each.name: reach.usual(evidence, each.name) for each in evidence.workloads}
    binding, level = weighty(reach.shares(evidence)), answer_level(evidence, policy)
    out: list[Accuracy | None] = []
    for arm in evidence.challengers:
        able = telling(tuple(each for each in evidence.accuracy if each.arm == arm.name), policy)
        own = {name: _own(able, name, ends) for name, ends in between.items()}
        needed = [each for each in able if not binding or any(each is mine for name in binding for mine in own[name])]
        out.append(_pool(needed, arm.name, None, policy, level, asked=able, rivals=rivals(evidence)))
        out.extend(_pool(mine, arm.name, name, policy, level, asked=able, rivals=rivals(evidence)) for name, mine in own.items())
    return tuple(each for each in out if each is not None)


def controls(evidence: Evidence, policy: Policy) -> tuple[Accuracy, ...]:
    """Return, pooled over all lengths, how the second answers of each arm that was asked twice differ from its first."""
    arms = dict.fromkeys(each.arm for each in evidence.aa_accuracy)
    again = {arm: [each for each in evidence.aa_accuracy if each.arm == arm and _scores(each)] for arm in arms}
    found = (_pool(buckets, arm, None, policy, answer_level(evidence, policy), asked=buckets) for arm, buckets in again.items())
    return tuple(each for each in found if each is not None)


def _pool(
    buckets: list[AccuracyBucket],
    arm: str,
    workload: str | None,
    policy: Policy,
    level: float,
    *,
    asked: Sequence[AccuracyBucket],
    rivals: int = 1,
) -> Accuracy | None:
    found = _judged(buckets, policy, level / rivals) if buckets else None
    if found is None:
        return None
    each_judged = [(bucket, judged) for bucket in buckets if (judged := _judged([bucket], policy, level)) is not None]
    if not each_judged:
        return None
    # The surest loss, not the largest: ten items may fall by 20 points and show nothing.
    worst = min(each_judged, key=lambda pair: (pair[1][2], pair[1][0].value))
    difference, p_not_worse, p_worse = found
    worst_result = _result(worst[0], worst[1][0])
    reference, answers, clusters = _rows(buckets)
    return Accuracy(
        arm=arm,
        workload=workload,
        estimate=difference,
        p_not_worse=p_not_worse,
        p_worse=p_worse,
        worst=worst_result,
        has_collapsed=any(
            each.difference.is_below(-COLLAPSED * each.reference) for each in (_result_of(buckets, difference), worst_result)
        ),
        good_to=_good_to(buckets, policy, level),
        worst_p=min(planning.adjusted([judged[2] for _, judged in each_judged])),
        # The mean square difference is, for right and wrong answers, the share of items that differ.
        discordance=float(np.mean((answers - reference) ** 2)),
        items=int(np.unique(clusters).size),
        lengths=tuple(sorted({bucket.context_tokens for bucket in buckets})),
        asked_to=max(each.context_tokens for each in asked if workload is None or each.workload in (None, workload)),
    )


def _result_of(buckets: list[AccuracyBucket], difference: Estimate) -> BucketResult:
    """Return buckets as one, under the longest of their lengths."""
    longest = max(buckets, key=lambda each: each.context_tokens)
    return replace(_result(longest, difference), reference=float(_rows(buckets)[0].mean()), changed_p=None)


def _good_to(buckets: list[AccuracyBucket], policy: Policy, level: float) -> BucketResult | None:
    """Return the answers up to the longest length beyond which they are surely worse, and up to which none of them are."""
    surely_worse = [each.context_tokens for each in buckets if (found := _judged([each], policy, level)) is not None and found[2] <= level]
    for length in sorted({each.context_tokens for each in buckets}, reverse=True)[1:]:
        below, beyond = ([each for each in buckets if (each.context_tokens <= length) == is_below] for is_below in (True, False))
        good, bad = _judged(below, policy, level), _judged(beyond, policy, level)
        if good is None or bad is None or bad[2] > level:
            continue
        is_good = good[0].value > -policy.accuracy_margin and good[2] > level and min(surely_worse, default=np.inf) > length
        if is_good:
            return _result_of(below, good[0])
    return None


def telling(buckets: tuple[AccuracyBucket, ...], policy: Policy) -> tuple[AccuracyBucket, ...]:
    """Return the buckets that can show a loss; the others count for nothing, and what they cover is untested."""
    least = LEAST_IN_A_BUCKET * policy.accuracy_margin
    return tuple(each for each in buckets if each.reference_right is not None and each.reference_right >= least)
