"""The arm breaks a service level that the reference holds:
a faster mean does not help the turn that comes too late.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from advisor import words
from advisor.case import Case
from advisor.estimate import Estimate
from advisor.evidence import Calls
from advisor.policy import Metric
from advisor.statistics.quantiles import quantile
from advisor.verdict import Finding, Inequality, Weight, Word

NEEDS = frozenset({"policy.slos", "speeds"})
_NAMES: Final[dict[Metric, str]] = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "turn_ms": "Turn latency"}


class _Look(NamedTuple):
    """One limit of one workload that one arm has to meet."""

    workload: str
    share: float
    """Of the turns."""
    metric: Metric
    limit: float
    arm: str

    @property
    def name(self) -> str:
        return f"{_NAMES[self.metric]} p{100 * self.share:.0f}"


def _looks(case: Case) -> Iterator[_Look]:
    for workload in case.evidence.workloads:
        slo = case.policy.slo(workload.name)
        if slo is None:
            continue
        for metric, limit in slo.limits():
            for arm in case.evidence.challengers:
                yield _Look(workload.name, slo.share, metric, limit, arm.name)


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding an arm, workload and limit that the
    arm breaks: a veto where that is sure and the arm's doing.
    """
    looks = list(_looks(case))
    for look in looks:
        sides = case.evidence.sides(look.workload, look.arm)
        speed = case.speed(look.arm, look.workload, look.metric)
        if sides is None or speed is None:
            continue
        theirs, mine = (_reached(calls, look) for calls in sides)
        if mine is None or theirs is None or mine.value <= look.limit:
            continue
        # Two tails near a limit may lie on either side of it by
        # chance; the same turns do not get longer by chance.
        is_longer = speed.spread.p_above(0.0) * len(looks) <= case.policy.alpha / 2
        yield _finding(case, look, mine, theirs, is_longer=is_longer)


def _reached(calls: Calls, look: _Look) -> Estimate | None:
    """Return the quantile that a limit is on."""
    took = calls.lasting(look.metric)
    return quantile(took, calls.session, look.share, unit="ms")


def _finding(
    case: Case, look: _Look, mine: Estimate, theirs: Estimate, *, is_longer: bool
) -> Finding:
    limit = look.limit
    is_above = mine.is_above(limit)
    is_sure = is_above and theirs.value <= limit and is_longer
    # Faster outside the level is of no use; where GPUs
    # decide, each arm runs at a load that is within it.
    is_useless = case.decided_by != "gpus" and is_above and theirs.value > limit
    kind: Weight = "opposes" if is_useless or theirs.value <= limit else "informs"
    word: Word | None = "test further" if is_useless else None
    limit_met = f"whether it meets the limit of {words.limit(limit)} is open"
    if is_above:
        limit_met = f"the limit is {words.limit(limit)}"
    return Finding(
        kind="blocks" if is_sure else kind,
        arm=look.arm,
        workload=look.workload,
        message=(
            f"{look.name} of {look.workload} is {words.latency(mine)} on {look.arm} and "
            f"{words.latency(theirs)} on "
            f"{case.evidence.reference}; {limit_met}."
        ),
        estimates=(mine, theirs),
        inequality=Inequality(
            left=f"{look.name} on {look.arm}",
            observed=mine,
            relation="<=",
            right=words.limit(limit),
            holds=False if is_above else None,
        ),
        flips=f"a limit above {words.ms(mine.high or mine.value)}" if is_sure else None,
        leg="pays",
        asks_for="avoid" if is_sure else word,
    )
