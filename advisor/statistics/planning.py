"""Say how much more evidence settles a question, never from the observed effect.

A plan that chases its own estimate is worth nothing. The plan asks for enough units that a
truth of twice the margin is called different, and a truth of zero is called equal, in nine runs
of ten: a verdict stands on two criteria, and both then hold in four runs of five.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

import scipy

from advisor.statistics import accuracy

POWER = 0.90
LEVEL = 0.025  # one-sided, of a claim that no other can replace
FAMILY = 2  # claims of which either is enough: faster turns, or more agents
LATER_LOOKS = 0.005  # one-sided, what all looks after the first may spend together
# one-sided and at each of twelve looks: 2.5% over all (simulated, docs/statistics.md)
PLANNED_LEVEL = 0.0037
# by the starts that pairs take turns on (tests/advisor/one_start.py)
STARTED_LEVELS = {1: 0.017, 2: 0.0135, 4: 0.012, 8: 0.009}
# likewise, of twelve looks at answers, which are fewer in kind: right or wrong
PLANNED_ANSWERS = 0.0045
MOST_UNITS = 100_000
PLANNED_DISCORDANCE = 0.10  # share of items that differ, before any were asked
PLANNED_CORRELATION = 0.10  # of the differences behind one context, likewise


def look_level(look: int, alpha: float) -> float:
    """Return the one-sided level of a run's *look*-th look (1, 2, …) where none were planned.

    The first has half of *alpha*, as a single look does; the later ones spend half a
    percent more among them, each half of what is left. However often a run is enlarged
    and judged again, a claim is wrong in no more than 3% of runs at an alpha of 5%.
    """
    assert look >= 1, look
    if look == 1:
        return alpha / 2
    later = LATER_LOOKS * alpha / (2 * LEVEL)
    return later / 2.0 ** (look - 1)


def planned_level(alpha: float, *, starts: int | None = None) -> float:
    """Return the one-sided level of each look of a planned sequence of at most twelve.

    Where pairs take turns on a few *starts*, all looks share their errors: what is drawn
    once is paid once, and only as many looks are made as still narrow the interval.
    """
    level = PLANNED_LEVEL
    if starts is not None:
        known = (each for each in STARTED_LEVELS if each >= starts)
        level = STARTED_LEVELS[min(known, default=8)]
    return level * alpha / (2 * LEVEL)


def answer_level(alpha: float, *, planned: bool) -> float:
    """Return the one-sided level of a look at paired answers.

    A look of a *planned* sequence of at most twelve has its part of *alpha*, another all of it.
    """
    if not planned:
        return alpha / 2
    return PLANNED_ANSWERS * alpha / (2 * LEVEL)


def z_reach(level: float = LEVEL / FAMILY, power: float = POWER) -> float:
    """Return how many standard errors a truth must lie beyond a bound to be shown beyond it."""
    shown = scipy.special.ndtri(1 - level)
    often = scipy.special.ndtri(power)
    return float(shown + often)


def units_needed(
    deviation: float, margin: float, *, level: float = LEVEL / FAMILY, power: float = POWER
) -> int:
    """Return how many units (block pairs) settle an effect against *margin*.

    *deviation* is the standard deviation of one unit.
    """
    assert margin > 0, margin
    if deviation == 0:
        return 3

    def settles(n: int) -> bool:
        shown = scipy.special.stdtrit(n - 1, 1 - level)
        often = scipy.special.stdtrit(n - 1, power)
        reach = float(shown + often)
        return reach * deviation <= margin * float(n**0.5)

    return _least(settles)


@cache
def items_needed(
    discordance: float, margin: float, *, level: float = LEVEL, power: float = POWER
) -> int:
    """Return how many paired items show "not worse by *margin*" where nothing is lost.

    *discordance* is the share of the items that differ; the count follows from the test's power.
    """

    def shows(n: int) -> bool:
        reached = accuracy.power(n, discordance, margin, level=level)
        return reached >= power

    return _least(shows)


def questions_a_context(
    correlation: float, context_tokens: float, question_tokens: float, *, most: int
) -> int:
    """Return how many questions behind one context settle most for the tokens they take.

    *correlation* is that of the differences behind one context.
    """
    if correlation <= 0:
        return most
    best = math.sqrt(context_tokens * (1 - min(correlation, 1.0)) / (question_tokens * correlation))
    return max(1, min(most, round(best)))


def _least(settles: Callable[[int], bool]) -> int:
    """Return the least count that settles, or `MOST_UNITS` where that many do not."""
    low, high = 2, 4
    while not settles(high):
        low, high = high, high * 2
        if high > MOST_UNITS:
            return MOST_UNITS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high


def holm_adjusted(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values in the order given.

    Reject those at or below the family's level.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    out = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        out[index] = running
    return tuple(out)
