"""The reference has to know the answers: questions that it
cannot answer either show no loss, however the arm fares.
"""

from collections.abc import Iterator

from advisor import words
from advisor.assess.accuracy import telling
from advisor.evidence import AccuracyBucket, Evidence
from advisor.policy import Policy
from advisor.verdict import Gate, Spoiled

NAME = "answers possible"
# margins that the reference has to get right: the margin is
# then a tenth of all it can do (published MRCR: 40 to 66 %)
LEAST = 10.0


def _broken(buckets: tuple[AccuracyBucket, ...]) -> str:
    known = [each for each in buckets if each.reference_garbage is not None]
    count, asked = (
        sum(each.reference_garbage or 0 for each in known),
        sum(each.items for each in known),
    )
    return f"; {count:,} of {asked:,} are garbage or were cut short" if count else ""


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm with answers."""
    least = LEAST * policy.accuracy_margin
    for arm in evidence.challengers:
        buckets = tuple(
            each
            for each in evidence.accuracy
            if each.arm == arm.name and each.reference_right is not None
        )
        if not buckets:
            continue
        weights = [
            each.items or len(each.reference_scores if each.reference_scores is not None else ())
            for each in buckets
        ]
        right = sum(
            weight * (each.reference_right or 0.0)
            for weight, each in zip(weights, buckets, strict=True)
        ) / sum(weights)
        known = telling(buckets, policy)
        silent = ", ".join(
            words.bucket(each.task, each.context_tokens) for each in buckets if each not in known
        )
        why = f", next to none of {silent}: what is asked there counts for nothing"
        if right < least:
            why = (
                f"{_broken(buckets)}: these questions cannot show a loss; give a thinking model "
                "room (--thinking), or ask easier tasks"
            )
        told = f"{evidence.reference} answers {right:.0%} right"
        spoils: tuple[Spoiled, ...] = ("accuracy",) if right < least else ()
        gate = Gate(
            name=NAME,
            arm=arm.name,
            message=told,
            observed=right,
            limit=least,
            unit="share",
            spoils=spoils,
        )
        yield gate.judged(good=right >= least and not silent, but=why)
