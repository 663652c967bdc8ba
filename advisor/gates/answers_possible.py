"""The reference has to know the answers: questions that it cannot answer either show no loss, however the arm fares."""

from __future__ import annotations

from advisor import words
from advisor.evidence import AccuracyBucket, Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "answers possible"
LEAST = 10.0  # margins that the reference has to get right: the margin is then a tenth of all it can do (published MRCR: 40 to 66 %)
LEAST_IN_A_BUCKET = 2.0  # margins; below, half of all it can do could be lost inside the margin


def telling(buckets: tuple[AccuracyBucket, ...], policy: Policy) -> tuple[AccuracyBucket, ...]:
    """Return the buckets that can show a loss; the others count for nothing, and what they cover is untested."""
    least = LEAST_IN_A_BUCKET * policy.accuracy_margin
    return tuple(each for each in buckets if each.reference_right is not None and each.reference_right >= least)


def _broken(buckets: tuple[AccuracyBucket, ...]) -> str:
    known = [each for each in buckets if each.reference_garbage is not None]
    count, asked = sum(each.reference_garbage or 0 for each in known), sum(each.items for each in known)
    return f"; {count:,} of {asked:,} are garbage or were cut short" if count else ""


def _gate(reference: str, arm: str, buckets: tuple[AccuracyBucket, ...], policy: Policy) -> Gate:
    weights = [each.items or len(each.reference_scores if each.reference_scores is not None else ()) for each in buckets]
    right = sum(weight * (each.reference_right or 0.0) for weight, each in zip(weights, buckets, strict=True)) / sum(weights)
    silent = [each for each in buckets if each not in telling(buckets, policy)]
    least = LEAST * policy.accuracy_margin
    told = f"{reference} answers {right:.0%} right"
    if right < least:
        why = f"{told}{_broken(buckets)}: these questions cannot show a loss; give a thinking model room (--thinking), or ask easier tasks"
    else:
        names = ", ".join(words.bucket(each.task, each.context_tokens) for each in silent)
        why = f"{told}, next to none of {names}: what is asked there counts for nothing" if silent else told
    return Gate(
        name=NAME,
        status="fail" if right < least or silent else "pass",
        arm=arm,
        message=why,
        observed=right,
        limit=least,
        unit="share",
        spoils=("accuracy",) if right < least else (),
    )


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm with answers."""
    gates = []
    for arm in evidence.challengers:
        buckets = tuple(each for each in evidence.accuracy if each.arm == arm.name and each.reference_right is not None)
        if buckets:
            gates.append(_gate(evidence.reference, arm.name, buckets, policy))
    return tuple(gates)
