"""Estimate how much slower an arm's steps are than its twin's, from trials that the twin replays.

Each load plays other sessions, so the share of turns within the level falls in jumps that differ
from draw to draw. A twin that replays a trial meets the same sessions: its shares at several step
times say which of them the measured share asks for. All trials of an arm together ask for one
factor.

Two things may be otherwise. The larger load of a draw may ask for more of the factor than the
smaller, for an arm's share may fall faster or slower than its twin's: that tilt is integrated out.
And the turns of one trial hold or miss together: the trials of all arms show by how much, and their
turns count for less. Where either is large, no step times explain the trials.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from advisor.evidence import Floats
from advisor.loads import FACTORS
from advisor.statistics.spread import student_reach

LOGS: Final = np.linspace(math.log(FACTORS[0]), math.log(FACTORS[-1]), 91)
MISSED: Final = 0.06
"""Prior sd of the log factor: half as much again as twins miss of step times."""
BELIEVED: Final = 2 * MISSED
"""Largest log factor that is believed: that of the trials, less its standard error."""
TILT: Final = 0.15
"""Prior sd of the change of the log factor by the log of the load: a slope may be off by that."""
TILTS: Final = TILT * np.linspace(-3, 3, 25)[:, None]
PRIOR_OF_TILTS: Final = -0.5 * (TILTS / TILT) ** 2
"""Log of the normal density of the tilt, a row for each tilt, but for a constant."""
PRIOR: Final = PRIOR_OF_TILTS - 0.5 * (LOGS / MISSED) ** 2
"""The same of tilt and log factor, which are independent."""
TILTED: Final = 2 * TILT
"""Mean tilt beyond which an arm differs from its twin in something else than step times."""
TOGETHER: Final = 0.1
"""Correlation of the turns of a trial beyond which something else than sessions makes them miss."""
SURE: Final = 0.02
"""Shares this close to none of the turns are taken as this far from it; to all, as half as far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One trial, and the shares of its turns that a twin holds at the step times `FACTORS`."""

    beyond: float
    """Log of its load, for one that the twin carries of that draw."""
    turns: int
    share: float
    expected: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFactor:
    """The log of the factor on a twin's step times, with its standard error."""

    log: float
    error: float
    freedom: int
    """Degrees of freedom of the error, which all arms share."""
    tilt: float
    asked: float
    """Distance of the log factor from 0 that the trials alone ask for, less its standard error."""

    @property
    def is_believed(self) -> bool:
        """Tell whether step times alone explain the trials."""
        is_ordinary = self.asked <= BELIEVED
        is_upright = abs(self.tilt) <= TILTED
        return is_ordinary and is_upright

    def half_width(self, level: float) -> float:
        """Return the half width of the interval of the log."""
        return self.error * student_reach(level, self.freedom)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """What the trials of one arm say, as if their turns were independent."""

    likely: Floats
    """Log likelihood by tilt and log factor."""
    distance: float
    """Pearson's statistic: the sum of squares of the trials' distances from the likeliest shares,
    in standard deviations.
    """


def step_factors(trials: Mapping[str, Sequence[Compared]]) -> dict[str, StepFactor] | None:
    """Return the factor of each arm; None where factors do not explain the trials.

    Each arm has two trials at least; two in all leave no freedom for an error.
    """
    every = [each for own in trials.values() for each in own]
    freedom = len(every) - len(trials)
    if freedom < 2:
        return None
    fits = {arm: _fit(own) for arm, own in trials.items()}
    dispersion = _dispersion(fits.values(), freedom=freedom)
    turns = np.mean([each.turns for each in every])
    # A correlation of the turns of a trial adds as much to their dispersion for each turn.
    if dispersion - 1 > TOGETHER * turns:
        return None
    found = {arm: _factor(fit.likely / dispersion, freedom - 1) for arm, fit in fits.items()}
    if all(each.is_believed for each in found.values()):
        return found
    return None


def _dispersion(fits: Iterable[_Fit], *, freedom: int) -> float:
    """Return how many times as much trials scatter as independent turns would, 1 at least.

    It is Pearson's statistic by its degrees of freedom, as in a quasi-binomial regression. Trials
    in which everything holds scatter by nothing, so a small dispersion shows nothing.
    """
    distance = sum(each.distance for each in fits)
    return max(1.0, distance / freedom)


def _fit(trials: Sequence[Compared]) -> _Fit:
    """Return the binomial likelihood of an arm's trials, and Pearson's statistic at its best."""
    likely = np.zeros((TILTS.size, LOGS.size))
    distance = np.zeros_like(likely)
    for each in trials:
        factor = LOGS + TILTS * each.beyond
        held_by_twin = np.interp(factor, np.log(FACTORS), each.expected)
        expected = _unsure(held_by_twin)
        seen = _unsure(np.float64(each.share))
        likely += each.turns * (seen * np.log(expected) + (1 - seen) * np.log(1 - expected))
        variance = expected * (1 - expected)
        distance += each.turns * (seen - expected) ** 2 / variance
    best = np.argmax(likely + PRIOR)
    return _Fit(likely=likely, distance=float(distance.ravel()[best]))


def _unsure(share: Floats | np.float64) -> Floats:
    """Return shares kept away from 0 and 1, which have no log likelihood."""
    return np.clip(share, SURE, 1 - SURE / 2)


def _factor(likely: Floats, freedom: int) -> StepFactor:
    """Return the mean and the scatter of the log factor, over all tilts."""
    weights = _weights(likely + PRIOR)
    mean, error = _mean_log(weights)
    tilt = float((weights * TILTS).sum())
    # What the trials ask for without the prior of the factor.
    mean_of_trials, error_of_trials = _mean_log(_weights(likely + PRIOR_OF_TILTS))
    asked = abs(mean_of_trials) - error_of_trials
    return StepFactor(log=mean, error=error, freedom=freedom, tilt=tilt, asked=asked)


def _weights(joint: Floats) -> Floats:
    """Return the posterior of each point of the grid, from the logs of prior and likelihood."""
    return np.exp(joint - scipy.special.logsumexp(joint))


def _mean_log(weights: Floats) -> tuple[float, float]:
    """Return the mean of the log factor and its standard deviation."""
    mean = float((weights * LOGS).sum())
    variance = float((weights * (LOGS - mean) ** 2).sum())
    return mean, math.sqrt(variance)
