"""The reference has to know the answers: questions that it
cannot answer either show no loss, however the arm fares.
"""

from collections.abc import Iterator

from advisor import words
from advisor.assess.answers import telling
from advisor.evidence import AccuracyBucket, Arm, Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "answers possible"
# margins that the reference has to get right: the margin is
# then a tenth of all it can do (published MRCR: 40 to 66%)
LEAST = 10.0


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm with answers."""
    for arm in evidence.challengers:
        buckets = tuple(
            each
            for each in evidence.accuracy
            if each.arm == arm.name and each.reference_right is not None
        )
        if buckets:
            yield _gate(evidence, arm, buckets, policy)


def _gate(
    evidence: Evidence, arm: Arm, buckets: tuple[AccuracyBucket, ...], policy: Policy
) -> Gate:
    least = LEAST * policy.accuracy_margin
    right = _share_right(buckets)
    is_enough = right >= least
    able = telling(buckets, policy)
    silent = [each for each in buckets if each not in able]
    names = ", ".join(words.bucket(each.task, each.context_tokens) for each in silent)
    why = f", next to none of {names}: what is asked there counts for nothing"
    if not is_enough:
        why = f"{_broken(buckets)}: these questions cannot show a loss; {_remedy(evidence)}"
    gate = Gate(
        name=NAME,
        arm=arm.name,
        message=f"{evidence.reference} answers {right:.0%} right",
        observed=right,
        limit=least,
        unit="share",
        spoils=() if is_enough else ("accuracy",),
    )
    return gate.judged(good=is_enough and not silent, but=why)


def _share_right(buckets: tuple[AccuracyBucket, ...]) -> float:
    """Return the share of all answers that the reference gets right."""
    weights = [_weight(each) for each in buckets]
    shares = [each.reference_right or 0.0 for each in buckets]
    right = sum(weight * share for weight, share in zip(weights, shares, strict=True))
    return right / sum(weights)


def _weight(bucket: AccuracyBucket) -> int:
    """Return the answers of a bucket: those counted, else those scored."""
    if bucket.items or bucket.reference_scores is None:
        return bucket.items
    return len(bucket.reference_scores)


def _broken(buckets: tuple[AccuracyBucket, ...]) -> str:
    """Say how many answers of the reference are garbage; empty where none is."""
    known = [each for each in buckets if each.reference_garbage is not None]
    count = sum(each.reference_garbage or 0 for each in known)
    asked = sum(each.items for each in known)
    return f"; {count:,} of {asked:,} are garbage or were cut short" if count else ""


def _remedy(evidence: Evidence) -> str:
    if any("dummy" in each.flags for each in evidence.arms):
        return "the weights are random"
    return "give a thinking model room (--thinking), or ask easier tasks"
