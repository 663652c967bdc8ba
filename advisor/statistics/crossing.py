"""Find the load at which a share of the turns still meets the service level, from trials.

Each trial is a new draw of sessions. The share within falls from almost all to almost none over a
narrow range of loads, and where it falls depends on which sessions a trial drew: ten trials of
fifteen minutes put the limit of one server at 6 to 10 agents. So a trial's share is a logistic
curve in the log of its load, moved by a draw of its own; slope and scatter are one for all arms,
whose trials are regressed together on a grid. What is looked for is the load at which the *mean*
share over draws falls to the wanted one: what a long run sees. From half way between the wanted
share and 1 on, and below a half, a share says that the load is carried, or is not, and nothing of
the slope: curves level out there for other reasons, such as prompts that hit no cache.

Where a model of the server has played the very sessions of a trial, it says how many ordinary
sessions they are worth: what is left of the draw is what the model misses.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy

from advisor.evidence import Floats
from advisor.loads import TwinReplay

STEP: Final = 0.03  # of the log load; a fifth of what one trial is uncertain by
BEYOND: Final = 1.5  # log load to both sides of what was tried that the limit may lie at
# share against log load: from 95 to 50% over a factor of 2.7 to one of 1.06
SLOPES: Final = np.geomspace(3, 48, 7)[:, None, None]
SCATTER: Final = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45])[:, None]
# log sd of where single trials of 15 minutes see the limit:
# 0.20 and 0.11 on two arms, ten simulated trials each
USUAL: Final = 0.2
# and what is left of it where the draw is known: 0.01 where
# the model is right, a few times that where it is not
MODELLED: Final = 0.05
# steps that a draw moves a trial's curve by, at most: more than three of the largest scatter
FARTHEST: Final = 50
FLOOR: Final = 0.5  # a share below it says only that the load is not carried
TROUBLED: Final = 20  # turns that the trouble of a server counts for, whatever its turns say
# a logistic averaged over normal shifts is one of a smaller slope (Zeger et al., 1988)
MARGINAL: Final = 16 * 3**0.5 / (15 * np.pi)
LEVEL: Final = 0.95


def _moves() -> Floats:
    """Return how likely a draw moves a curve by each number of steps, a row for each scatter."""
    steps = np.arange(-FARTHEST, FARTHEST + 1)
    deviations = STEP * steps / SCATTER
    densities = np.exp(-0.5 * deviations**2)
    probabilities: Floats = densities / densities.sum(axis=1, keepdims=True)
    return probabilities


MOVES: Final = _moves()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One trial: its load, and how many of its turns were within the service level."""

    load: float
    turns: int
    within: int
    is_modelled: bool = False
    """What its draw of sessions is worth is in its load."""
    error: float = 0.0
    """Half width of the interval of that worth, on the log scale; the trials of an arm share it."""
    replay: TwinReplay | None = None

    @classmethod
    def of(
        cls,
        load: float,
        turns: int,
        within: int,
        trouble: str | None,
        *,
        worth: float | None = None,
        error: float = 0.0,
        replay: TwinReplay | None = None,
    ) -> "Tried":
        """Return a trial; a server in trouble carries nothing, whatever its turns say.

        *worth* is how many ordinary sessions each of its sessions counts for, where a model of the
        server has played them.
        """
        if trouble is not None:
            turns, within = max(turns, TROUBLED), 0
        return cls(
            load=load * (worth or 1.0),
            turns=turns,
            within=within,
            is_modelled=worth is not None,
            error=error,
            replay=replay,
        )

    def holds(self, share: float) -> bool:
        """Say whether *share* of its turns, or more, were within the service level."""
        return self.within >= share * self.turns


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedLoad:
    """The load that an arm carries, between the ends of its interval.

    Where every trial held, *high* is None and *value* the highest load tried; where none did, *low*
    and *value* are 0.
    """

    low: float
    value: float
    high: float | None
    is_by_twin: bool = False
    """It is that of a twin with the step times that the trials ask for."""

    def widened(self, error: float) -> "CarriedLoad":
        """Return the load with an interval that holds an *error* which all its trials share.

        *error* is a half width on the log scale.
        """
        if not error or not self.low:
            return self
        # Independent errors add up by their squares.
        down = math.hypot(math.log(self.value / self.low), error)
        high = None
        if self.high is not None:
            up = math.hypot(math.log(self.high / self.value), error)
            high = self.value * math.exp(up)
        return replace(self, low=self.value / math.exp(down), high=high)

    def is_within(self, width: float) -> bool:
        """Say whether the ends are at most a factor of (1 + *width*) squared apart."""
        if self.low <= 0 or self.high is None:
            return False
        return self.high <= self.low * (1 + width) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """What all arms' trials say of the load at which *share* of the turns meets the level."""

    trials: Mapping[str, Sequence[Tried]]
    share: float
    loads: Floats
    """What the limit may be: by slope, scatter and where half of the turns hold."""
    weights: Mapping[str, Floats]
    """The posterior of each arm over them."""

    def at(self, arm: str, probability: float) -> float:
        """Return a quantile of the load that an arm carries."""
        order = np.argsort(self.loads, axis=None)
        rising = self.loads.ravel()[order]
        reached = np.cumsum(self.weights[arm].ravel()[order])
        place = np.searchsorted(reached, probability * reached[-1])
        return float(rising[min(place, rising.size - 1)])

    def limit(self, arm: str, *, level: float = LEVEL) -> CarriedLoad:
        """Return the load that an arm carries, with its interval at the confidence *level*."""
        trials = self.trials[arm]
        held = [each.load for each in trials if each.holds(self.share)]
        low = self.at(arm, (1 - level) / 2)
        high = self.at(arm, (1 + level) / 2)
        if not held:
            return CarriedLoad(low=0.0, value=0.0, high=high)
        if len(held) == len(trials):
            most = max(held)
            return CarriedLoad(low=min(low, most), value=most, high=None)
        return CarriedLoad(low=low, value=self.at(arm, 0.5), high=high)


def crossing(trials: Mapping[str, Sequence[Tried]], *, share: float) -> Crossing:
    """Regress the share of turns within the service level on log load, over all arms' trials.

    Each arm has one trial at least.
    """
    every = [each for own in trials.values() for each in own]
    tried = np.log([each.load for each in every])
    lowest = tried.min() - BEYOND
    highest = tried.max() + BEYOND
    halves = np.arange(lowest, highest, STEP)
    likely: dict[str, Floats] = {}
    evidence: dict[str, Floats] = {}
    for arm, own in trials.items():
        logs = [_log_likelihood(each, halves, share=share) for each in own]
        likely[arm] = np.sum(logs, axis=0)
        evidence[arm] = scipy.special.logsumexp(likely[arm], axis=2, keepdims=True)
    # Slope and scatter are those of all arms: the others' evidence is an arm's prior.
    prior = _prior(MODELLED if all(each.is_modelled for each in every) else USUAL)
    together = prior + np.sum(list(evidence.values()), axis=0)
    weights = {}
    for arm in trials:
        joint = likely[arm] + together - evidence[arm]
        weights[arm] = np.exp(joint - scipy.special.logsumexp(joint))
    # The mean over draws is a logistic as well, of a smaller slope: it reaches the share sooner.
    width = np.sqrt(1 / SLOPES**2 + (MARGINAL * SCATTER) ** 2)
    loads = np.exp(halves - scipy.special.logit(share) * width)
    return Crossing(trials=trials, share=share, loads=loads, weights=weights)


def _prior(usual: float) -> Floats:
    """Return the log of the prior of the scatter: half-normal, with the scale *usual*."""
    half_normal = 0.5 * np.log(2 / np.pi) - (SCATTER / usual) ** 2 / 2 - np.log(usual)
    # The grid is even in the log of the scatter.
    density: Floats = half_normal + np.log(SCATTER)
    return density


def _log_likelihood(trial: Tried, halves: Floats, *, share: float) -> Floats:
    """Return how likely a trial is, by slope, scatter and where (*halves*) half of the turns hold.

    It is the log of the likelihood, divided by that of a curve which meets the share exactly.
    Without a draw of its own a trial is binomial. The draw moves its curve to smaller or larger
    loads, so the binomial likelihood is averaged over normal moves.
    """
    ceiling = 1 - (1 - share) / 2  # half way between the wanted share and 1
    seen = min(max(trial.within / trial.turns, FLOOR), ceiling)
    curve = scipy.special.expit(SLOPES[:, 0] * (halves - np.log(trial.load)))
    expected = np.clip(curve, FLOOR, ceiling)
    within = scipy.special.xlogy(seen, expected / seen)
    beyond = scipy.special.xlogy(1 - seen, (1 - expected) / (1 - seen))
    unmoved = np.exp(trial.turns * (within + beyond))
    # A move beyond an end of the grid meets the likelihood at that end.
    padded = np.pad(unmoved, ((0, 0), (FARTHEST, FARTHEST)), mode="edge")
    neighbours = np.lib.stride_tricks.sliding_window_view(padded, 2 * FARTHEST + 1, axis=1)
    averaged = np.swapaxes(neighbours @ MOVES.T, 1, 2)
    logs: Floats = np.log(averaged + 1e-12)
    return logs
