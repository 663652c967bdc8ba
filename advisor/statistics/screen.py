"""Compare an arm's log probabilities with how far the reference is from itself.

Is a length far off, or are all, or is one broken? No fixed distance means anything: equal servers
differ as well, by another salt or batch. So the reference is asked again on the same prompt, and
the log of a ratio of mean total variations is looked at, prompt by prompt: the prompt is the unit.
That an arm is as accurate does not follow from equal distances; only graded answers say that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import scipy

from advisor.evidence import Screened
from advisor.statistics.planning import holm_adjusted

# total variation below which numbers count as equal: on a CPU a server may equal itself exactly
FLOOR = 1e-4
LEAST_PROMPTS = 8  # 2^-8 = 0.4 %: with five, no test passes where six lengths are looked at
FAR = 10.0  # times the reference's own distance
# limit of `FAR` times the reference's own distance: a total variation is never above 1
NEARLY_ALL = 0.9
UNSTEADY = 0.3  # a reference this far from itself cannot show that an arm is broken
AGREES = 0.5  # share of places with the same likeliest token; below, and far, answers are broken
BROKEN_PROMPTS = 3  # prompts in a row, all of which have to be far off
# times as far as at the length before: another kernel path jumps so far, rounding does not
STEP = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLength:
    """Say how an arm compares with the reference's own distances at one length."""

    length: float
    prompts: int
    times: float  # median over prompts: its distance from the reference over the reference's own
    agreement: float  # mean share of places with the same likeliest token
    # one-sided, of a larger distance than the reference has
    # from itself; Holm over lengths; None: too few prompts
    p: float | None
    is_broken: bool


Pattern = Literal["broken", "step", "uniform", "grows", "inside", "few"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Hold what a screen says of one arm.

    Questions are worth most at the lengths with the largest shift, the first in `ranked`.
    """

    arm: str
    pattern: Pattern
    lengths: tuple[AtLength, ...]
    at: float | None = None  # length at which a step or the broken answers start

    @property
    def ranked(self) -> tuple[float, ...]:
        """Return the lengths, the one that stands out most first."""
        return tuple(
            each.length
            for each in sorted(self.lengths, key=lambda each: (-each.times, -each.length))
        )


def shift(row: Screened) -> float:
    """Return log10 of the arm's distance from the reference over the reference's own."""
    return math.log10(max(row.variation, FLOOR) / _own(row))


def _own(row: Screened) -> float:
    return max(sum(row.own) / len(row.own), FLOOR)


def _is_far(row: Screened) -> bool:
    return _own(row) < UNSTEADY and row.variation > min(FAR * _own(row), NEARLY_ALL)


def is_broken(rows: Sequence[Screened]) -> bool:
    """Say whether an arm's answers are broken at a length, by size and not by a test.

    They are where each of `BROKEN_PROMPTS` prompts in a row is far off and disagrees.
    """
    bad = [
        row.agreement < AGREES and _is_far(row) for row in sorted(rows, key=lambda row: row.prompt)
    ]
    return any(all(bad[at : at + BROKEN_PROMPTS]) for at in range(len(bad) - BROKEN_PROMPTS + 1))


def screening(rows: Sequence[Screened], *, alpha: float) -> Screening:
    """Return what the rows of one arm say, its lengths tested together at *alpha*."""
    by_length = {
        length: [row for row in rows if row.length == length]
        for length in sorted({row.length for row in rows})
    }
    tested = {
        length: _p(list(map(shift, own)))
        for length, own in by_length.items()
        if len(own) >= LEAST_PROMPTS
    }
    p = dict(zip(tested, holm_adjusted(tuple(tested.values())), strict=True))
    lengths = tuple(
        AtLength(
            length=length,
            prompts=len(own),
            times=10 ** float(np.median(list(map(shift, own)))),
            agreement=float(np.mean([row.agreement for row in own])),
            p=p.get(length),
            is_broken=is_broken(own),
        )
        for length, own in by_length.items()
    )
    broken = next((each.length for each in lengths if each.is_broken), None)
    if broken is not None:
        return Screening(arm=rows[0].arm, pattern="broken", lengths=lengths, at=broken)
    outside = [each for each in lengths if each.p is not None and each.p <= alpha]
    if not outside:
        return Screening(arm=rows[0].arm, pattern="inside" if p else "few", lengths=lengths)
    step = _step(by_length, alpha=alpha)
    if step is not None:
        return Screening(arm=rows[0].arm, pattern="step", lengths=lengths, at=step)
    times = [each.times for each in lengths]
    is_uniform = len(outside) == len(p) and max(times) < STEP * min(times)
    return Screening(arm=rows[0].arm, pattern="uniform" if is_uniform else "grows", lengths=lengths)


def _step(by_length: dict[float, list[Screened]], *, alpha: float) -> float | None:
    """Return the length with the largest jump of the distance on the same prompts, if any."""
    jumps = {}
    for before, after in pairwise(by_length):
        shorter = {row.prompt: shift(row) for row in by_length[before]}
        own = [
            shift(row) - shorter[row.prompt] for row in by_length[after] if row.prompt in shorter
        ]
        if len(own) >= LEAST_PROMPTS:
            jumps[after] = own
    p = dict(zip(jumps, holm_adjusted([_p(own) for own in jumps.values()]), strict=True))
    large = [
        length
        for length, own in jumps.items()
        if p[length] <= alpha and np.median(own) >= math.log10(STEP)
    ]
    return max(large, key=lambda length: float(np.median(jumps[length])), default=None)


def _p(shifts: Sequence[float]) -> float:
    """Return the one-sided p-value of Wilcoxon's signed-rank test that shifts are above zero."""
    moved = [each for each in shifts if each != 0]
    return (
        float(scipy.stats.wilcoxon(moved, alternative="greater", method="exact").pvalue)
        if moved
        else 1.0
    )
