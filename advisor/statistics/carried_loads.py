"""State the load that each arm carries: by twins that play its trials again, or by regression.

A twin that meets the sessions of a trial with longer or shorter steps says which step times the
trial asks for; its long run at these is what the arm carries. Where no twin played the trials
again, or no step times explain them, the share of turns that hold is regressed on the load.

An arm's share may fall in another form than its twin's. One that stays just below the level over a
wide range of loads seems to have shorter steps; to the regression, whose slope other arms may take
from a cliff, its limit seems to be where the wide range ends. So an arm carries no more for sure
than at the loads that its twin says it carries, where these held.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from advisor.loads import TwinReplay
from advisor.statistics.crossing import LEVEL, CarriedLoad, Tried, crossing
from advisor.statistics.spread import normal_reach
from advisor.statistics.step_factor import ReplayedTrial, StepFactor, step_factors

INVERSE: Final = -1.0
"""Change of the log of a load by that of step times, where no twin was asked."""
ROUNDING: Final = 1e-9
"""A load may be what a twin carries to the last digit."""


def carried_loads(
    trials: Mapping[str, Sequence[Tried]], *, share: float, level: float = LEVEL
) -> dict[str, CarriedLoad]:
    """Return the load that each arm carries, with intervals at *level*."""
    if not trials:
        return {}
    factors = _factors(trials)
    if factors is None:
        fit = crossing(trials, share=share)
        found = {arm: fit.limit(arm, level=level) for arm in trials}
    else:
        found = {arm: _by_twin(own, factors[arm], level=level) for arm, own in trials.items()}
    wider = normal_reach(level) / normal_reach(LEVEL)
    known = {}
    for arm, limit in found.items():
        held = _load_that_held(trials[arm], share=share)
        low = limit.low if held is None else min(limit.low, held)
        error = max(each.error for each in trials[arm])  # at LEVEL
        known[arm] = replace(limit, low=low).widened(wider * error)
    return known


def _load_that_held(trials: Sequence[Tried], *, share: float) -> float | None:
    """Return the load that a twin says its arm carries; None where nobody says or it did not hold.

    Loads are in whole agents, so what held is the largest below it.
    """
    below = [each for each in trials if _is_carried_by_twin(each)]
    turns = sum(each.turns for each in below)
    within = sum(each.within for each in below)
    if not below or within < share * turns:
        return None
    return _carried_by_twin(below)


def _carried_by_twin(trials: Sequence[Tried]) -> float:
    """Return the load of the twin's long runs, in the mean of the trials that it played again."""
    carried = [each.replay.carried for each in trials if each.replay is not None]
    return math.exp(fmean(map(math.log, carried)))


def _is_carried_by_twin(trial: Tried) -> bool:
    return trial.replay is not None and trial.load <= trial.replay.carried * (1 + ROUNDING)


def _factors(trials: Mapping[str, Sequence[Tried]]) -> dict[str, StepFactor] | None:
    """Return the factors on the twins' step times that explain all trials; None without any."""
    compared = {}
    for arm, own in trials.items():
        compared[arm] = [_compared(each, each.replay) for each in own if each.replay is not None]
        if not 1 < len(compared[arm]) == len(own):
            return None
    return step_factors(compared)


def _compared(trial: Tried, replay: TwinReplay) -> ReplayedTrial:
    return ReplayedTrial(
        log_load=math.log(trial.load / replay.carried),
        turns=trial.turns,
        share=trial.within / trial.turns,
        expected=replay.expected,
    )


def _by_twin(trials: Sequence[Tried], factor: StepFactor, *, level: float) -> CarriedLoad:
    """Return the load that a twin carries once its steps take so much longer."""
    replays = [each.replay for each in trials if each.replay is not None]
    stretches = [each.stretch for each in replays if each.stretch is not None]
    stretch = INVERSE
    if stretches:
        # Longer steps carry no more, whatever a few short draws say.
        stretch = min(0.0, fmean(stretches))
    value = _carried_by_twin(trials) * math.exp(stretch * factor.log)
    # What a twin misses may move the load as much, where its step times move it less.
    moves = max(1.0, abs(stretch))
    moved = math.exp(moves * factor.half_width(level))
    return CarriedLoad(low=value / moved, value=value, high=value * moved, is_by_twin=True)
