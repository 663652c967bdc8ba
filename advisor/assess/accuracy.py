"""Judge paired answers: by bucket, and pooled over the lengths that a workload really has.

Where the user's own trace is known, a length weighs as many calls as it represents.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

from advisor.assess import reach
from advisor.case import BrokenAnswers, PooledAccuracy, answer_level, rivals, weighty
from advisor.estimate import Estimate
from advisor.evidence import AccuracyBucket, Bools, Evidence, Floats, Ints
from advisor.policy import Policy
from advisor.statistics import accuracy, planning
from advisor.verdict import BucketResult, QuestionsAsked

# of the right answers: scales that are off lose points, a broken kernel loses most
COLLAPSED: Final = 0.5
LEAST_LOST: Final = 10  # answers right on the reference alone, while none is right on the arm alone
LEAST_SUSPECT: Final = 4  # the same at one depth: a reason to ask more
# contexts with such answers: the questions of one context may share its odd text
LEAST_CONTEXTS: Final = 3
# margins of right answers; below, half of them could be lost inside the margin
LEAST_IN_A_BUCKET = 2.0


def _is_binary(bucket: AccuracyBucket) -> bool:
    """Say whether answers are right or wrong and nothing between, so that counts are enough."""
    scores = (bucket.reference_scores, bucket.arm_scores)
    return all(each is None or bool(np.isin(each, (0.0, 1.0)).all()) for each in scores)


def _rows(buckets: list[AccuracyBucket]) -> tuple[Floats, Floats, Ints]:
    """Return reference scores, arm scores and clusters of all rows.

    Buckets that only count right answers enter as zeros and ones.
    """
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
        given = (
            each.clusters
            if each.clusters is not None and each.clusters.size == size
            else np.arange(size)
        )
        own = np.unique(given, return_inverse=True)[1]
        clusters.append(own.astype(np.int64) + (index << 32))
    return np.concatenate(reference), np.concatenate(arm), np.concatenate(clusters)


def _weight(
    buckets: Sequence[AccuracyBucket], shares: Mapping[float, float] | None
) -> Floats | None:
    """Return what each row weighs, in the order of `_rows`; None where all weigh alike.

    *shares* are those that each length has of the whole.
    """
    if shares is None:
        return None
    sizes = [_rows([each])[0].size for each in buckets]
    at = defaultdict[float, int](int)
    for each, size in zip(buckets, sizes, strict=True):
        at[each.context_tokens] += size
    weights = [shares[each.context_tokens] / max(1, at[each.context_tokens]) for each in buckets]
    rows = np.repeat(weights, sizes)
    return rows if rows.sum() > 0 else None


def _judged(
    buckets: list[AccuracyBucket],
    policy: Policy,
    one_sided: float,
    shares: Mapping[float, float] | None = None,
) -> tuple[Estimate, float, float] | None:
    """Return the difference, and the p-values of "not worse" and of "worse" by the margin.

    The interval of the difference is at the *one_sided* level. *shares* are those of the user's
    calls that each length represents.
    """
    margin, level = policy.accuracy_margin, 1 - 2 * one_sided
    reference, arm, clusters = _rows(buckets)
    if not reference.size:
        return None
    weights = _weight(buckets, shares)
    if all(_is_binary(each) for each in buckets):
        seen = accuracy.counts(arm - reference, clusters, weights)
        return (
            accuracy.tango(seen, level=level),
            accuracy.p_not_worse(seen, margin=margin),
            accuracy.p_worse(seen, margin=margin),
        )
    found = accuracy.graded(reference, arm, clusters, weights)
    if found is None:
        return None
    shown = found.estimate(
        unit="share", method="paired graded scores, contexts as clusters", level=level
    )
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
    """Return how much the differences of one context resemble each other.

    As they show, joined by what is assumed of ten more.
    """
    reference, arm, clusters = _rows([bucket])
    found = accuracy.counts(arm - reference, clusters)
    return 0.0 if found.beside == 0 else accuracy.RESEMBLANCE * (found.effect - 1) / found.beside


def _scores(bucket: AccuracyBucket) -> bool:
    return bucket.items > 0 or (
        bucket.reference_scores is not None and bucket.reference_scores.size > 0
    )


def bucket_results(evidence: Evidence, policy: Policy) -> tuple[BucketResult, ...]:
    """Return the paired difference of every bucket with answers."""
    level = answer_level(evidence, policy)
    judged = ((each, _judged([each], policy, level)) for each in evidence.accuracy if _scores(each))
    return tuple(_result(bucket, found[0]) for bucket, found in judged if found is not None)


def _own(
    buckets: Sequence[AccuracyBucket], workload: str, between: tuple[float, float] | None
) -> list[AccuracyBucket]:
    """Return the buckets that speak about *workload*, at the usual lengths of its calls.

    These are its own buckets and those of no workload.
    """
    mine = [each for each in buckets if each.workload in (None, workload)]
    lengths = reach.own((each.context_tokens for each in mine), between)
    return [each for each in mine if each.context_tokens in lengths]


def pooled(evidence: Evidence, policy: Policy) -> tuple[PooledAccuracy, ...]:
    """Return the pooled accuracy of every challenger for each workload and for the server.

    The server's is over all buckets that its weighty workloads need.
    """
    between = {each.name: reach.usual(evidence, each.name) for each in evidence.workloads}
    mix = reach.shares(evidence)
    binding, level = weighty(mix), answer_level(evidence, policy)
    out: list[PooledAccuracy | None] = []
    for arm in evidence.challengers:
        able = telling(tuple(each for each in evidence.accuracy if each.arm == arm.name), policy)
        own = {name: _own(able, name, ends) for name, ends in between.items()}
        needed = [
            each
            for each in able
            if not binding or any(each is mine for name in binding for mine in own[name])
        ]
        scopes = (
            (None, needed, [each for each in mix if each[0] in binding]),
            *((name, mine, [(name, 1.0)]) for name, mine in own.items()),
        )
        for name, mine, classes in scopes:
            shares = _shares(evidence, mine, classes)
            out.append(
                _pool(
                    mine,
                    arm.name,
                    name,
                    policy,
                    level,
                    asked=able,
                    rivals=rivals(evidence),
                    shares=shares,
                )
            )
    return tuple(each for each in out if each is not None)


def _shares(
    evidence: Evidence, buckets: Sequence[AccuracyBucket], mix: Sequence[tuple[str, float]]
) -> Mapping[float, float] | None:
    """Return the share of a mix's calls that each tested length represents.

    None where no class says how long its calls are, or only one length was tested.
    """
    tested = sorted({each.context_tokens for each in buckets})
    weights = {name: share for name, share in mix if share > 0}
    known = [(each.context_tokens, weights.get(each.name, 0.0)) for each in evidence.workloads]
    stands = [
        share * reach.standing(tested, own)
        for own, share in known
        if own is not None and own.size and share > 0
    ]
    if len(tested) < 2 or not stands:
        return None
    return dict(zip(tested, np.sum(stands, axis=0).tolist(), strict=True))


def controls(evidence: Evidence, policy: Policy) -> tuple[PooledAccuracy, ...]:
    """Return how the second answers of each arm that was asked twice differ from its first.

    They are pooled over all lengths.
    """
    arms = dict.fromkeys(each.arm for each in evidence.aa_accuracy)
    again = {
        arm: [each for each in evidence.aa_accuracy if each.arm == arm and _scores(each)]
        for arm in arms
    }
    found = (
        _pool(buckets, arm, None, policy, answer_level(evidence, policy), asked=buckets)
        for arm, buckets in again.items()
    )
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
    shares: Mapping[float, float] | None = None,
) -> PooledAccuracy | None:
    found = _judged(buckets, policy, level / rivals, shares) if buckets else None
    if found is None:
        return None
    judged_alone = ((bucket, _judged([bucket], policy, level)) for bucket in buckets)
    each_judged = [(bucket, judged) for bucket, judged in judged_alone if judged is not None]
    if not each_judged:
        return None
    # The surest loss, not the largest: ten items may fall by 20 points and show nothing.
    worst = min(each_judged, key=lambda pair: (pair[1][2], pair[1][0].value))
    difference, p_not_worse, p_worse = found
    worst_result = _result(worst[0], worst[1][0])
    reference, answers, clusters = _rows(buckets)
    lengths = tuple(sorted({bucket.context_tokens for bucket in buckets}))
    right = float(np.average(reference, weights=_weight(buckets, shares)))
    return PooledAccuracy(
        arm=arm,
        workload=workload,
        estimate=difference,
        p_not_worse=p_not_worse,
        p_worse=p_worse,
        worst=worst_result,
        good_to=_good_to(buckets, policy, level),
        worst_p=min(planning.holm_adjusted([judged[2] for _, judged in each_judged])),
        # The mean square difference is, for right and
        # wrong answers, the share of items that differ.
        discordance=float(np.mean((answers - reference) ** 2)),
        items=int(np.unique(clusters).size),
        lengths=lengths,
        answers=QuestionsAsked(questions=reference.size, lengths=lengths, reference=right),
        asked_to=max(
            each.context_tokens
            for each in asked
            if workload is None or each.workload in (None, workload)
        ),
    )


def _result_of(buckets: list[AccuracyBucket], difference: Estimate) -> BucketResult:
    """Return buckets as one, under the longest of their lengths."""
    longest = max(buckets, key=lambda each: each.context_tokens)
    return replace(
        _result(longest, difference), reference=float(_rows(buckets)[0].mean()), changed_p=None
    )


def _good_to(buckets: list[AccuracyBucket], policy: Policy, level: float) -> BucketResult | None:
    """Return the answers up to a length where none is surely worse and those beyond it are.

    It is the longest such length; None where there is none.
    """
    alone = ((each.context_tokens, _judged([each], policy, level)) for each in buckets)
    surely_worse = [length for length, found in alone if found is not None and found[2] <= level]
    for length in sorted({each.context_tokens for each in buckets}, reverse=True)[1:]:
        below, beyond = (
            [each for each in buckets if (each.context_tokens <= length) == is_below]
            for is_below in (True, False)
        )
        good, bad = _judged(below, policy, level), _judged(beyond, policy, level)
        if good is None or bad is None or bad[2] > level:
            continue
        is_good = (
            good[0].value > -policy.accuracy_margin
            and good[2] > level
            and min(surely_worse, default=np.inf) > length
        )
        if is_good:
            return _result_of(below, good[0])
    return None


def telling(buckets: tuple[AccuracyBucket, ...], policy: Policy) -> tuple[AccuracyBucket, ...]:
    """Return the buckets that can show a loss.

    The others count for nothing, and what they cover is untested.
    """
    least = LEAST_IN_A_BUCKET * policy.accuracy_margin
    return tuple(
        each
        for each in buckets
        if each.reference_right is not None and each.reference_right >= least
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """Paired answers as equally long columns."""

    buckets: tuple[AccuracyBucket, ...]
    reference: Floats
    arm: Floats
    contexts: Ints
    lengths: Floats
    depths: Floats

    def only(self, rows: Bools) -> "_Answers":
        """Return the answers of some rows."""
        return replace(
            self,
            reference=self.reference[rows],
            arm=self.arm[rows],
            contexts=self.contexts[rows],
            lengths=self.lengths[rows],
            depths=self.depths[rows],
        )

    @property
    def lost(self) -> Bools:
        """Tell which answers are better on the reference."""
        return np.asarray(self.arm < self.reference, dtype=np.bool_)

    @property
    def is_mostly_lost(self) -> bool:
        """Tell whether the arm has less than half of what the reference gets right."""
        return bool(self.arm.sum() < (1 - COLLAPSED) * self.reference.sum())


def _answers(buckets: tuple[AccuracyBucket, ...]) -> _Answers:
    reference, arm, contexts = _rows(list(buckets))
    depths = (
        np.full(each.items, -1.0) if each.depths is None else np.nan_to_num(each.depths, nan=-1.0)
        for each in buckets
    )
    return _Answers(
        buckets=buckets,
        reference=reference,
        arm=arm,
        contexts=contexts,
        lengths=np.repeat(
            [each.context_tokens for each in buckets], [each.items for each in buckets]
        ),
        depths=np.concatenate(list(depths)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Hold where arms are broken, and the single depths at which they may be."""

    broken: tuple[BrokenAnswers, ...]
    suspects: tuple[BrokenAnswers, ...]


def faults(evidence: Evidence, policy: Policy) -> Faults:
    """Return where the answers of each arm are wrong altogether.

    What counts is neighbouring lengths at each of which most of the right answers are gone. There,
    every answer that differs has to speak against the arm, often enough, in several contexts and
    at all depths; or so much has to be gone that the interval says so. Where answers are gone at
    single depths alone, each of those depths has to show it by itself.
    """
    level = answer_level(evidence, policy)
    broken: list[BrokenAnswers] = []
    suspects: list[BrokenAnswers] = []
    for arm in evidence.challengers:
        asked = tuple(each for each in evidence.accuracy if each.arm == arm.name and _scores(each))
        able = telling(asked, policy)
        if not able:
            continue
        answers = _answers(able)
        gone = [*_gone(answers, arm.name)]
        found = [
            each
            for each, within in gone
            if _is_against(within, LEAST_LOST, LEAST_CONTEXTS)
            or _is_surely_gone(within, each.lengths, policy, level)
        ]
        deep = [*_at_depths(answers, arm.name)]
        found += [each for each, within in deep if _is_against(within, LEAST_LOST, LEAST_CONTEXTS)]
        broken.extend(found)
        if not found:
            few = (
                each for each, within in deep if _is_against(within, LEAST_SUSPECT, LEAST_SUSPECT)
            )
            suspects.extend(few)
    return Faults(broken=tuple(broken), suspects=tuple(suspects))


def _gone(answers: _Answers, arm: str) -> Iterator[tuple[BrokenAnswers, _Answers]]:
    """Yield each run of lengths at which most right answers are gone, at every depth.

    The longest lengths come first.
    """
    lengths = [float(each) for each in np.unique(answers.lengths)]
    gone = {each: answers.only(answers.lengths == each).is_mostly_lost for each in lengths}
    runs = [(is_gone, tuple(run)) for is_gone, run in groupby(lengths, gone.__getitem__)]
    for number in reversed(range(len(runs))):
        is_gone, run = runs[number]
        within = answers.only(np.isin(answers.lengths, run))
        if not is_gone or {*within.depths[within.lost]} != {*within.depths}:
            continue
        found = BrokenAnswers(
            arm=arm,
            lengths=run,
            depths=(),
            right=round(float(within.arm.sum())),
            reference_right=round(float(within.reference.sum())),
            items=within.arm.size,
            sound_to=runs[number - 1][1][-1] if number else None,
            sound_from=runs[number + 1][1][0] if number + 1 < len(runs) else None,
        )
        yield found, within


def _at_depths(answers: _Answers, arm: str) -> Iterator[tuple[BrokenAnswers, _Answers]]:
    """Yield the same for each single depth, where other depths of its lengths are sound."""
    for depth in np.unique(answers.depths):
        for found, within in _gone(answers.only(answers.depths == depth), arm):
            around = (answers.depths != depth) & np.isin(answers.lengths, found.lengths)
            others = answers.only(around)
            if others.arm.size and not others.is_mostly_lost:
                yield replace(found, depths=(float(depth),)), within


def _is_against(answers: _Answers, least_lost: int, least_contexts: int) -> bool:
    """Tell whether all that differs speaks against the arm, and there is enough of it."""
    lost = answers.lost
    return (
        not bool(np.any(answers.arm > answers.reference))
        and int(lost.sum()) >= least_lost
        and np.unique(answers.contexts[lost]).size >= least_contexts
    )


def _is_surely_gone(
    answers: _Answers, lengths: tuple[float, ...], policy: Policy, level: float
) -> bool:
    """Tell whether the interval shows a loss of over half of what the reference gets right."""
    within = [each for each in answers.buckets if each.context_tokens in lengths]
    found = _judged(within, policy, level)
    return found is not None and found[0].is_below(-COLLAPSED * float(answers.reference.mean()))
