"""Compare an arm's log probabilities with how far the reference is from itself.

Is a length far off, or are all, or is one broken? No fixed distance means anything: equal servers
differ as well, by another salt or batch. So the reference is asked again on the same prompt, and
the log of a ratio of mean total variations is looked at, prompt by prompt: the prompt is the unit.
That an arm is as accurate does not follow from equal distances; only graded answers say that.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from advisor.evidence import Floats, Screened
from advisor.statistics.planning import holm_adjusted

# total variation below which numbers count as equal: on a CPU a server may equal itself exactly
FLOOR = 1e-4
LEAST_PROMPTS = 8  # 2^-8 = 0.4%: with five, no test passes where six lengths are looked at
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
        farthest_first = sorted(self.lengths, key=lambda each: (-each.times, -each.length))
        return tuple(each.length for each in farthest_first)


def shift(row: Screened) -> float:
    """Return log10 of the arm's distance from the reference over the reference's own."""
    variation = max(row.variation, FLOOR)
    return math.log10(variation / _own(row))


def _own(row: Screened) -> float:
    """Return the reference's mean distance from itself."""
    mean = sum(row.own) / len(row.own)
    return max(mean, FLOOR)


def _is_far(row: Screened) -> bool:
    own = _own(row)
    return own < UNSTEADY and row.variation > min(FAR * own, NEARLY_ALL)


def is_broken(rows: Sequence[Screened]) -> bool:
    """Say whether an arm's answers are broken at a length, by size and not by a test.

    They are where each of `BROKEN_PROMPTS` prompts in a row is far off and disagrees.
    """
    in_a_row = 0
    for row in sorted(rows, key=lambda row: row.prompt):
        is_bad = row.agreement < AGREES and _is_far(row)
        in_a_row = in_a_row + 1 if is_bad else 0
        if in_a_row == BROKEN_PROMPTS:
            return True
    return False


def screening(rows: Sequence[Screened], *, alpha: float) -> Screening:
    """Return what the rows of one arm say, its lengths tested together at *alpha*."""
    arm = rows[0].arm
    by_length: dict[float, list[Screened]] = {}
    for row in sorted(rows, key=lambda row: row.length):
        by_length.setdefault(row.length, []).append(row)
    lengths = _at_lengths(by_length)
    broken = next((each.length for each in lengths if each.is_broken), None)
    if broken is not None:
        return Screening(arm=arm, pattern="broken", lengths=lengths, at=broken)
    tested = [each.p for each in lengths if each.p is not None]
    outside = [p for p in tested if p <= alpha]
    if not outside:
        return Screening(arm=arm, pattern="inside" if tested else "few", lengths=lengths)
    step = _step(by_length, alpha=alpha)
    if step is not None:
        return Screening(arm=arm, pattern="step", lengths=lengths, at=step)
    times = [each.times for each in lengths]
    is_everywhere = len(outside) == len(tested)
    is_even = max(times) < STEP * min(times)
    pattern: Pattern = "uniform" if is_everywhere and is_even else "grows"
    return Screening(arm=arm, pattern=pattern, lengths=lengths)


def _at_lengths(by_length: Mapping[float, Sequence[Screened]]) -> tuple[AtLength, ...]:
    """Return what is seen at each length, with p-values where prompts are enough for a test."""
    shifts = {length: list(map(shift, rows)) for length, rows in by_length.items()}
    is_tested = [length for length in shifts if len(shifts[length]) >= LEAST_PROMPTS]
    adjusted = holm_adjusted([_p(shifts[length]) for length in is_tested])
    p = dict(zip(is_tested, adjusted, strict=True))
    found = []
    for length, rows in by_length.items():
        agreement = np.mean([row.agreement for row in rows])
        at = AtLength(
            length=length,
            prompts=len(rows),
            times=10 ** float(np.median(shifts[length])),
            agreement=float(agreement),
            p=p.get(length),
            is_broken=is_broken(rows),
        )
        found.append(at)
    return tuple(found)


def _step(by_length: Mapping[float, Sequence[Screened]], *, alpha: float) -> float | None:
    """Return the length with the largest jump of the distance on the same prompts, if any."""
    jumps: dict[float, list[float]] = {}
    for before, after in pairwise(by_length):
        shorter = {row.prompt: shift(row) for row in by_length[before]}
        jump = [
            shift(row) - shorter[row.prompt] for row in by_length[after] if row.prompt in shorter
        ]
        if len(jump) >= LEAST_PROMPTS:
            jumps[after] = jump
    adjusted = holm_adjusted([_p(jump) for jump in jumps.values()])
    sizes: dict[float, float] = {}
    for (length, jump), p in zip(jumps.items(), adjusted, strict=True):
        size = float(np.median(jump))
        if p <= alpha and size >= math.log10(STEP):
            sizes[length] = size
    return max(sizes, key=sizes.__getitem__, default=None)


def _p(shifts: Sequence[float]) -> float:
    """Return the one-sided p-value of Wilcoxon's signed-rank test that shifts are above zero."""
    moved = np.array([each for each in shifts if each != 0])
    if not moved.size:
        return 1.0
    size = np.unique(np.abs(moved), return_inverse=True)[1]
    equals = np.bincount(size)
    ranks = np.cumsum(equals) - (equals - 1) / 2  # shifts of one size share their mean rank
    above = ranks[size][moved > 0].sum()
    chances = _chances_of_sums(moved.size)
    return float(chances[math.floor(above) :].sum())


def _chances_of_sums(shifts: int) -> Floats:
    """Return how likely each sum of the ranks above zero is where none of the shifts is real."""
    chances = np.ones(1)
    for rank in range(1, shifts + 1):
        none = np.zeros(rank)
        is_below = np.append(chances, none)
        is_above = np.append(none, chances)
        chances = (is_below + is_above) / 2
    return chances
