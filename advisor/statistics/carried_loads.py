"""State the load that each arm carries: by twins that play its trials again, or by regression.

A twin that meets the sessions of a trial with longer or shorter steps says which step times the
trial asks for; its long run at these is what the arm carries. Where no twin played the trials
again, or no step times explain them, the share of turns that hold is regressed on the load.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

import scipy

from advisor.statistics.crossing import LEVEL, CarriedLoad, Tried, crossing
from advisor.statistics.step_factor import Compared, StepFactor, step_factors

INVERSE: Final = -1.0
"""Change of the log of a load by that of step times, where no twin was asked."""


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
    # errors are given at 95 %
    wider = float(scipy.special.ndtri(0.5 + level / 2) / scipy.special.ndtri(0.5 + LEVEL / 2))
    errors = {arm: wider * max(each.error for each in own) for arm, own in trials.items()}
    return {arm: limit.widened(errors[arm]) for arm, limit in found.items()}


def _factors(trials: Mapping[str, Sequence[Tried]]) -> dict[str, StepFactor] | None:
    """Return the factors on the twins' step times that explain all trials; None without any."""
    compared = {
        arm: [
            Compared(
                beyond=math.log(each.load / each.replay.carried),
                turns=each.turns,
                share=each.within / each.turns,
                expected=each.replay.expected,
            )
            for each in own
            if each.replay is not None
        ]
        for arm, own in trials.items()
    }
    is_whole = all(len(trials[arm]) == len(own) > 1 for arm, own in compared.items())
    return step_factors(compared) if is_whole else None


def _by_twin(trials: Sequence[Tried], factor: StepFactor, *, level: float) -> CarriedLoad:
    """Return the load that a twin carries once its steps take so much longer."""
    replays = [each.replay for each in trials if each.replay is not None]
    stretches = [each.stretch for each in replays if each.stretch is not None]
    # Longer steps carry no more, whatever a few short draws say.
    stretch = min(0.0, fmean(stretches)) if stretches else INVERSE
    value = math.exp(fmean(math.log(each.carried) for each in replays) + stretch * factor.log)
    # What a twin misses may move the load as much, where its step times move it less.
    moved = math.exp(max(1.0, abs(stretch)) * factor.half_width(level))
    return CarriedLoad(low=value / moved, value=value, high=value * moved, is_by_twin=True)
