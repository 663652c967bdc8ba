"""Judge paired answers: by bucket, and pooled over the lengths that a workload really has.

Where the user's own trace is known, a length weighs as many calls as it represents.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.assess import reach
from advisor.assess.answers import (
    MarginTest,
    has_answers,
    is_binary,
    margin_test,
    paired_scores,
    telling,
)
from advisor.case import look_level_of_answers, rivals, weighty
from advisor.estimate import Estimate, present
from advisor.evidence import AccuracyBucket, Evidence
from advisor.policy import Policy
from advisor.results import PooledAccuracy
from advisor.statistics import accuracy, planning
from advisor.verdict import BucketResult, QuestionsAsked


def _changed_p(bucket: AccuracyBucket) -> float | None:
    """Return exact McNemar's p-value where items are right or wrong and independent."""
    clusters = paired_scores([bucket]).clusters
    share_contexts = np.unique(clusters).size < clusters.size
    if share_contexts or not is_binary(bucket):
        return None
    return accuracy.mcnemar(reference_only=bucket.reference_only, arm_only=bucket.arm_only)


def _result(bucket: AccuracyBucket, difference: Estimate) -> BucketResult:
    return BucketResult(
        arm=bucket.arm,
        task=bucket.task,
        context_tokens=bucket.context_tokens,
        difference=difference,
        reference=paired_scores([bucket]).reference_mean,
        changed_p=_changed_p(bucket),
    )


def correlation(bucket: AccuracyBucket) -> float:
    """Return how much the differences of one context resemble each other.

    As they show, joined by what is assumed of ten more.
    """
    scores = paired_scores([bucket])
    counts = accuracy.counts(scores.change, scores.clusters)
    if counts.beside == 0:
        return 0.0
    return accuracy.RESEMBLANCE * (counts.effect - 1) / counts.beside


def bucket_results(evidence: Evidence, policy: Policy) -> tuple[BucketResult, ...]:
    """Return the paired difference of every bucket with answers."""
    answered = list(filter(has_answers, evidence.accuracy))
    alone = _alone(answered, policy, look_level_of_answers(evidence, policy))
    return tuple(_result(bucket, found.difference) for bucket, found in alone)


def _own(
    buckets: Sequence[AccuracyBucket], workload: str, between: tuple[float, float] | None
) -> list[AccuracyBucket]:
    """Return the buckets that speak about *workload*, at the usual lengths of its calls.

    These are its own buckets and those of no workload.
    """
    about = [each for each in buckets if each.workload in (None, workload)]
    tested = [each.context_tokens for each in about]
    lengths = reach.lengths_about(tested, between)
    return [each for each in about if each.context_tokens in lengths]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Name the buckets that count for a workload, and the classes whose lengths weigh them."""

    workload: str | None
    buckets: Sequence[AccuracyBucket]
    classes: Sequence[tuple[str, float]]
    asked_to: float  # longest context with answers about it, whether or not they count


def by_workload(evidence: Evidence, policy: Policy) -> tuple[PooledAccuracy, ...]:
    """Return the pooled accuracy of every challenger for each workload and for the server.

    The server's is over all buckets that its weighty workloads need.
    """
    level = look_level_of_answers(evidence, policy)
    level_of_rivals = level / rivals(evidence)  # Bonferroni
    out: list[PooledAccuracy | None] = []
    for arm in evidence.challengers:
        asked = [each for each in evidence.accuracy if each.arm == arm.name]
        able = telling(tuple(asked), policy)
        for scope in _scopes(evidence, able):
            shares = _shares(evidence, scope.buckets, scope.classes)
            whole = margin_test(scope.buckets, policy, level_of_rivals, shares)
            out.append(_pool(scope, whole, arm.name, policy, level))
    return tuple(present(out))


def _scopes(evidence: Evidence, able: tuple[AccuracyBucket, ...]) -> Iterator[_Scope]:
    """Yield the scope of the server, then that of each workload that buckets speak about."""
    mix = reach.shares(evidence)
    binding = weighty(mix)
    own = {}
    for each in evidence.workloads:
        lengths = reach.usual(reach.contexts(evidence, each.name))
        own[each.name] = _own(able, each.name, lengths)
    needed = {id(bucket) for name in binding for bucket in own[name]}
    of_server = [each for each in able if id(each) in needed] if binding else able
    if of_server:
        yield _Scope(
            workload=None,
            buckets=of_server,
            classes=[(name, share) for name, share in mix if name in binding],
            asked_to=_longest(able),
        )
    for name, buckets in own.items():
        if buckets:
            yield _Scope(
                workload=name,
                buckets=buckets,
                classes=[(name, 1.0)],
                asked_to=_longest(each for each in able if each.workload in (None, name)),
            )


def _longest(buckets: Iterable[AccuracyBucket]) -> float:
    return max(each.context_tokens for each in buckets)


def _shares(
    evidence: Evidence, buckets: Sequence[AccuracyBucket], mix: Sequence[tuple[str, float]]
) -> Mapping[float, float] | None:
    """Return the share of a mix's calls that each tested length represents.

    None where no class says how long its calls are, or only one length was tested.
    """
    tested = sorted({each.context_tokens for each in buckets})
    share_of = dict(mix)
    represented = []
    for workload in evidence.workloads:
        share = share_of.get(workload.name, 0.0)
        contexts = workload.context_tokens
        if share > 0 and contexts is not None and contexts.size:
            represented.append(share * reach.represented_shares(tested, contexts))
    if len(tested) < 2 or not represented:
        return None
    total = np.sum(represented, axis=0)
    return dict(zip(tested, total.tolist(), strict=True))


def controls(evidence: Evidence, policy: Policy) -> tuple[PooledAccuracy, ...]:
    """Return how the second answers of each arm that was asked twice differ from its first.

    They are pooled over all lengths.
    """
    level = look_level_of_answers(evidence, policy)
    by_arm = defaultdict[str, list[AccuracyBucket]](list)
    for bucket in filter(has_answers, evidence.aa_accuracy):
        by_arm[bucket.arm].append(bucket)
    out = []
    for arm, buckets in by_arm.items():
        scope = _Scope(workload=None, buckets=buckets, classes=(), asked_to=_longest(buckets))
        out.append(_pool(scope, margin_test(buckets, policy, level), arm, policy, level))
    return tuple(present(out))


def _pool(
    scope: _Scope, whole: MarginTest | None, arm: str, policy: Policy, level: float
) -> PooledAccuracy | None:
    """Return a *whole* comparison with its worst bucket; None where nothing can be compared."""
    alone = _alone(scope.buckets, policy, level)
    if whole is None or not alone:
        return None
    worst, worst_found = min(alone, key=_harm)
    p_of_buckets = [found.p_worse for _, found in alone]
    scores = paired_scores(scope.buckets)
    lengths = tuple(sorted({each.context_tokens for each in scope.buckets}))
    answers = QuestionsAsked(questions=scores.size, lengths=lengths, reference=whole.reference_mean)
    return PooledAccuracy(
        arm=arm,
        workload=scope.workload,
        estimate=whole.difference,
        p_not_worse=whole.p_not_worse,
        p_worse=whole.p_worse,
        worst=_result(worst, worst_found.difference),
        good_to=_good_to(scope.buckets, policy, level),
        worst_p=min(planning.holm_adjusted(p_of_buckets)),
        # The mean square difference is, for right and
        # wrong answers, the share of items that differ.
        discordance=float(np.mean(scores.change**2)),
        lengths=lengths,
        answers=answers,
        asked_to=scope.asked_to,
    )


def _alone(
    buckets: Sequence[AccuracyBucket], policy: Policy, level: float
) -> list[tuple[AccuracyBucket, MarginTest]]:
    """Return the test of each bucket by itself; those that cannot be tested are left out."""
    tests = ((bucket, margin_test([bucket], policy, level)) for bucket in buckets)
    return [(bucket, found) for bucket, found in tests if found is not None]


def _harm(judged: tuple[AccuracyBucket, MarginTest]) -> tuple[float, float]:
    """Order buckets by the surest loss, not the largest.

    Ten items may fall by 20 points and show nothing.
    """
    _, found = judged
    return found.p_worse, found.difference.value


def _good_to(
    buckets: Sequence[AccuracyBucket], policy: Policy, level: float
) -> BucketResult | None:
    """Return the answers up to a length where none is surely worse and those beyond it are.

    It is the longest such length; None where there is none.
    """
    lengths = sorted({each.context_tokens for each in buckets})
    shortest_worse = _shortest_worse(buckets, policy, level)
    for length in reversed(lengths[:-1]):
        if shortest_worse <= length:
            continue
        below = [each for each in buckets if each.context_tokens <= length]
        beyond = [each for each in buckets if each.context_tokens > length]
        good = margin_test(below, policy, level)
        bad = margin_test(beyond, policy, level)
        if good is None or bad is None:
            continue
        is_good = good.difference.value > -policy.accuracy_margin
        if is_good and good.p_worse > level >= bad.p_worse:
            return _joined(below, good.difference)
    return None


def _shortest_worse(buckets: Sequence[AccuracyBucket], policy: Policy, level: float) -> float:
    """Return the shortest length of a bucket that is surely worse by itself; infinite for none."""
    alone = _alone(buckets, policy, level)
    worse = (bucket.context_tokens for bucket, found in alone if found.p_worse <= level)
    return min(worse, default=math.inf)


def _joined(buckets: Sequence[AccuracyBucket], difference: Estimate) -> BucketResult:
    """Return buckets as one, under the longest of their lengths."""
    longest = max(buckets, key=lambda each: each.context_tokens)
    return replace(
        _result(longest, difference),
        reference=paired_scores(buckets).reference_mean,
        changed_p=None,
    )
