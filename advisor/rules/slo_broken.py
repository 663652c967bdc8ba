"""The arm breaks a service level that the reference holds:
a faster mean does not help the turn that comes too late.
"""

from collections.abc import Iterator
from typing import get_args

from advisor import words
from advisor.case import Case
from advisor.statistics.paired import Metric
from advisor.statistics.quantiles import quantile
from advisor.verdict import Finding, Inequality, Weight, Word

NEEDS = frozenset({"policy.slos", "speeds"})


def _looks(case: Case) -> list[tuple[str, float, Metric, float, str]]:
    """Return every limit of every workload that every arm has
    to meet: (workload, share of turns, metric, limit, arm).
    """
    return [
        (workload.name, slo.share, metric, limit, arm.name)
        for workload in case.evidence.workloads
        if (slo := case.policy.slo(workload.name)) is not None
        for metric in get_args(Metric)
        if (limit := getattr(slo, metric)) is not None
        for arm in case.evidence.challengers
    ]


def _word(*, is_sure: bool, is_useless: bool) -> Word | None:
    if is_sure:
        return "avoid"
    return "test further" if is_useless else None


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding an arm, workload and limit that the
    arm breaks: a veto where that is sure and the arm's doing.
    """
    looks = _looks(case)
    for workload, share, metric, limit, arm in looks:
        sides, speed = case.evidence.sides(workload, arm), case.speed(arm, workload, metric)
        if sides is None or speed is None:
            continue
        theirs, mine = (
            quantile(calls.lasting(metric), calls.session, share, unit="ms") for calls in sides
        )
        if mine is None or theirs is None or mine.value <= limit:
            continue
        # Two tails near a limit may lie on either side of it by
        # chance; the same turns do not get longer by chance.
        is_longer = speed.spread.p_above(0.0) * len(looks) <= case.policy.alpha / 2
        is_sure = mine.is_above(limit) and theirs.value <= limit and is_longer
        name = f"{metric.removesuffix('_ms')} p{100 * share:.0f}"
        # Faster outside the level is of no use; where GPUs
        # decide, each arm runs at a load that is within it.
        is_useless = case.decided_by == "latency" and mine.is_above(limit) and theirs.value > limit
        kind: Weight = "opposes" if is_useless or theirs.value <= limit else "informs"
        yield Finding(
            kind="blocks" if is_sure else kind,
            arm=arm,
            workload=workload,
            message=(
                f"{name} of {workload} is {words.latency(mine)} on {arm} and "
                f"{words.latency(theirs)} on {case.evidence.reference}; "
                f"the limit is {limit:.0f} "
                f"ms{'' if is_sure else ', not surely broken' if mine.low is None or mine.low <= limit else ''}."
            ),
            estimates=(mine, theirs),
            inequality=Inequality(
                left=f"{name} on {arm}",
                observed=mine,
                relation="<=",
                right=f"{limit:.0f} ms",
                holds=False if mine.is_above(limit) else None,
            ),
            flips=f"a limit above {mine.high or mine.value:.0f} ms" if is_sure else None,
            leg="pays",
            asks_for=_word(is_sure=is_sure, is_useless=is_useless),
        )
