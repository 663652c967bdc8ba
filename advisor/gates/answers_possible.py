"""The reference has to know the answers: questions that it
cannot answer either show no loss, however the arm fares.
"""

from collections.abc import Iterator

from advisor import words
from advisor.assess.answers import telling
from advisor.evidence import AccuracyBucket, Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "answers possible"
# margins that the reference has to get right: the margin is
# then a tenth of all it can do (published MRCR: 40 to 66%)
LEAST = 10.0


def _broken(buckets: tuple[AccuracyBucket, ...]) -> str:
    known = [each for each in buckets if each.reference_garbage is not None]
    count = sum(each.reference_garbage or 0 for each in known)
    asked = sum(each.items for each in known)
    if not count:
        return ""
    return f"; {count:,} of {asked:,} are garbage or were cut short"


def _weight(bucket: AccuracyBucket) -> int:
    """Return the answers of a bucket: those counted, else those scored."""
    if bucket.items or bucket.reference_scores is None:
        return bucket.items
    return len(bucket.reference_scores)


def _share_right(buckets: tuple[AccuracyBucket, ...]) -> float:
    """Return the share of all answers that the reference gets right."""
    weights = [_weight(each) for each in buckets]
    shares = [each.reference_right or 0.0 for each in buckets]
    right = sum(weight * share for weight, share in zip(weights, shares, strict=True))
    return right / sum(weights)


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm with answers."""
    for arm in evidence.challengers:
        own = [each for each in evidence.accuracy if each.arm == arm.name]
        known = tuple(each for each in own if each.reference_right is not None)
        if known:
            is_random = any("dummy" in each.flags for each in evidence.arms)
            yield _gate(evidence.reference, arm.name, known, policy, is_random=is_random)


def _gate(
    reference: str,
    arm: str,
    buckets: tuple[AccuracyBucket, ...],
    policy: Policy,
    *,
    is_random: bool,
) -> Gate:
    least = LEAST * policy.accuracy_margin
    right = _share_right(buckets)
    is_enough = right >= least
    able = telling(buckets, policy)
    silent = [each for each in buckets if each not in able]
    names = ", ".join(words.bucket(each.task, each.context_tokens) for each in silent)
    why = f", next to none of {names}: what is asked there counts for nothing"
    if not is_enough:
        step = (
            "the weights are random"
            if is_random
            else "give a thinking model room (--thinking), or ask easier tasks"
        )
        why = f"{_broken(buckets)}: these questions cannot show a loss; {step}"
    gate = Gate(
        name=NAME,
        arm=arm,
        message=f"{reference} answers {right:.0%} right",
        observed=right,
        limit=least,
        unit="share",
        spoils=() if is_enough else ("accuracy",),
    )
    return gate.judged(good=is_enough and not silent, but=why)
