"""Estimate how much slower an arm's steps are than its twin's, from trials that the twin replays.

Trials at different loads play different sessions, so the share of turns within the level falls in
jumps that differ from draw to draw. A twin that replays a trial meets the same sessions: its shares
at several step times say which of them the measured share asks for. All trials of an arm together
ask for one factor.

Two things can break that. The larger load of a draw may ask for more of the factor than the
smaller, as an arm's share may fall faster or slower than its twin's: that tilt is integrated out.
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

LOG_FACTORS: Final = np.linspace(math.log(FACTORS[0]), math.log(FACTORS[-1]), 91)
FACTOR_SD: Final = 0.06
"""Prior sd of the log factor: 1.5 times the error of a twin's step times."""
LARGEST_FACTOR: Final = 2 * FACTOR_SD
"""Largest log factor that is believed: what trials alone ask for, less its standard error."""
TILT_SD: Final = 0.15
"""Prior sd of the tilt: the change of the log factor for each unit of the log load."""
TILTS: Final = TILT_SD * np.linspace(-3, 3, 25)[:, None]
PRIOR_OF_TILTS: Final = -0.5 * (TILTS / TILT_SD) ** 2
"""Log of the prior density of the tilt, a row for each tilt, up to a constant."""
PRIOR: Final = PRIOR_OF_TILTS - 0.5 * (LOG_FACTORS / FACTOR_SD) ** 2
"""Log of the prior density of tilt and log factor, which are independent."""
LARGEST_TILT: Final = 2 * TILT_SD
"""Mean tilt beyond which an arm differs from its twin in something else than step times."""
MOST_CORRELATION: Final = 0.1
"""Correlation of the turns of a trial beyond which the sessions drawn do not explain the misses."""
CLIP: Final = 0.02
"""Shares are clipped to [CLIP, 1 - CLIP / 2]: 0 and 1 have no log likelihood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTrial:
    """One trial, and the shares of its turns that a twin holds at the step times `FACTORS`."""

    log_load: float
    """Log of its load, relative to what the twin carries in a long run."""
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
    distance_asked: float
    """How far from 0 the trials alone put the log factor, less its standard error."""

    @property
    def is_believed(self) -> bool:
        """Tell whether step times alone explain the trials."""
        return self.distance_asked <= LARGEST_FACTOR and abs(self.tilt) <= LARGEST_TILT

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


def step_factors(trials: Mapping[str, Sequence[ReplayedTrial]]) -> dict[str, StepFactor] | None:
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
    # Turns with a correlation r have a dispersion of about 1 + r * turns.
    if dispersion - 1 > MOST_CORRELATION * turns:
        return None
    found = {arm: _factor(fit.likely / dispersion, freedom - 1) for arm, fit in fits.items()}
    if all(each.is_believed for each in found.values()):
        return found
    return None


def _dispersion(fits: Iterable[_Fit], *, freedom: int) -> float:
    """Return how many times as much trials scatter as independent turns would, 1 at least.

    It is Pearson's statistic divided by its degrees of freedom, as in a quasi-binomial regression.
    Trials in which everything holds scatter by nothing, so a small dispersion shows nothing.
    """
    distance = sum(each.distance for each in fits)
    return max(1.0, distance / freedom)


def _fit(trials: Sequence[ReplayedTrial]) -> _Fit:
    """Return the binomial likelihood of an arm's trials, and Pearson's statistic at its best."""
    likely = np.zeros((TILTS.size, LOG_FACTORS.size))
    distance = np.zeros_like(likely)
    for each in trials:
        log_factor = LOG_FACTORS + TILTS * each.log_load
        held_by_twin = np.interp(log_factor, np.log(FACTORS), each.expected)
        expected = _clipped(held_by_twin)
        seen = _clipped(np.float64(each.share))
        likely += each.turns * (seen * np.log(expected) + (1 - seen) * np.log(1 - expected))
        variance = expected * (1 - expected)
        distance += each.turns * (seen - expected) ** 2 / variance
    best = np.argmax(likely + PRIOR)
    return _Fit(likely=likely, distance=float(distance.ravel()[best]))


def _clipped(share: Floats | np.float64) -> Floats:
    """Return shares that have a log likelihood."""
    return np.clip(share, CLIP, 1 - CLIP / 2)


def _factor(likely: Floats, freedom: int) -> StepFactor:
    """Return the mean and the scatter of the log factor, over all tilts."""
    weights = _weights(likely + PRIOR)
    mean, error = _mean_log(weights)
    tilt = float((weights * TILTS).sum())
    # What the trials ask for without the prior of the factor.
    mean_of_trials, error_of_trials = _mean_log(_weights(likely + PRIOR_OF_TILTS))
    distance = abs(mean_of_trials) - error_of_trials
    return StepFactor(log=mean, error=error, freedom=freedom, tilt=tilt, distance_asked=distance)


def _weights(joint: Floats) -> Floats:
    """Return the posterior of each point of the grid, from the logs of prior and likelihood."""
    return np.exp(joint - scipy.special.logsumexp(joint))


def _mean_log(weights: Floats) -> tuple[float, float]:
    """Return the mean of the log factor and its standard deviation."""
    mean = float((weights * LOG_FACTORS).sum())
    variance = float((weights * (LOG_FACTORS - mean) ** 2).sum())
    return mean, math.sqrt(variance)
