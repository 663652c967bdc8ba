"""The load at which a share of turns still holds, by the model as it is documented."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from advisor.statistics.crossing import Limit, Tried, crossing

TRIALS = {
    "bf16": (
        Tried(load=4, turns=200, within=199),
        Tried(load=8, turns=300, within=280),
        Tried(load=12, turns=300, within=210),
    ),
    "fp8": (Tried(load=10, turns=200, within=198), Tried(load=24, turns=400, within=120)),
}
SHARE = 0.95


def _by_hand(arm: str) -> tuple[np.ndarray, np.ndarray]:
    """Integrate slope, scatter and where half of the
    turns hold, each trial's draw on a grid of its own.
    """
    slopes, scatters = np.geomspace(3, 48, 7), np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45])
    tried = [math.log(each.load) for own in TRIALS.values() for each in own]
    middle = np.arange(min(tried) - 1.5, max(tried) + 1.5, 0.03)
    move = 0.03 * np.arange(-50, 51)
    logs: dict[str, np.ndarray] = {}
    for name, own in TRIALS.items():
        logs[name] = np.zeros((7, 7, middle.size))
        for place, slope in enumerate(slopes):
            for at, scatter in enumerate(scatters):
                weight = np.exp(-0.5 * (move / scatter) ** 2)
                for each in own:
                    # Beyond the grid a trial says what it says at its ends.
                    where = np.clip(middle[:, None] + move, middle[0], middle[-1])
                    share = np.clip(
                        1 / (1 + np.exp(-slope * (where - math.log(each.load)))), 0.5, 0.975
                    )
                    best = min(max(each.within / each.turns, 0.5), 0.975)
                    likely = np.exp(
                        each.turns
                        * (
                            best * np.log(share / best)
                            + (1 - best) * np.log((1 - share) / (1 - best))
                        )
                    )
                    logs[name][place, at] += np.log(likely @ weight / weight.sum() + 1e-12)
    prior = np.log(scatters) + stats.halfnorm.logpdf(scatters, scale=0.2)
    other = sum(np.exp(each).sum(axis=2) for name, each in logs.items() if name != arm)
    weights = np.exp(logs[arm]) * other[:, :, None] * np.exp(prior)[None, :, None]
    shift = math.log(SHARE / (1 - SHARE)) * np.sqrt(
        1 / slopes[:, None] ** 2 + (16 * 3**0.5 / (15 * math.pi) * scatters) ** 2
    )
    return np.exp(middle - shift[:, :, None]), weights


@pytest.mark.parametrize("arm", ["bf16", "fp8"])
def test_the_load_that_an_arm_carries_is_the_integral_that_is_documented(arm: str) -> None:
    fit = crossing(TRIALS, share=SHARE)
    loads, weights = _by_hand(arm)
    order = np.argsort(loads, axis=None)
    reached = np.cumsum(weights.ravel()[order]) / weights.sum()
    for probability in (0.025, 0.2, 0.5, 0.8, 0.975):
        expected = loads.ravel()[order][np.searchsorted(reached, probability)]
        assert fit.at(arm, probability) == pytest.approx(expected, rel=1e-6)
    limit = fit.limit(arm)
    assert (limit.low, limit.value, limit.high) == (
        fit.at(arm, 0.025),
        fit.at(arm, 0.5),
        fit.at(arm, 0.975),
    )
    assert fit.limit(arm, level=0.6).low == fit.at(arm, 0.2)


def test_an_arm_of_which_every_trial_held_or_none_has_one_end() -> None:
    held = {"a": (Tried(load=4, turns=100, within=95), Tried(load=8, turns=100, within=99))}
    broken = {"a": (Tried(load=4, turns=100, within=94), Tried(load=2, turns=100, within=60))}
    above, below = (crossing(each, share=SHARE).limit("a") for each in (held, broken))
    assert (above.value, above.high) == (8, None)
    assert above.low <= 8
    assert (below.low, below.value) == (0.0, 0.0)
    assert below.high is not None
    assert below.high < 4


@pytest.mark.parametrize(
    ("low", "high", "width", "within"),
    [
        (1.0, 4.0, 1.0, True),
        (1.0, 4.01, 1.0, False),
        (0.5, 0.7, 0.2, True),
        (0.0, 0.1, 0.5, False),
        (4.0, None, 9.0, False),
    ],
)
def test_an_interval_is_within_a_width_by_the_factor_to_each_end(
    low: float,
    high: float | None,
    width: float,
    within: bool,  # noqa: FBT001  # a case
) -> None:
    assert Limit(low=low, value=low, high=high).is_within(width) == within


def test_a_server_in_trouble_carries_nothing_however_few_its_turns_were() -> None:
    assert Tried.of(8, 300, 290, None) == Tried(load=8, turns=300, within=290)
    assert Tried.of(8, 300, 290, "died") == Tried(load=8, turns=300, within=0)
    assert Tried.of(8, 3, 3, "died") == Tried(load=8, turns=20, within=0)
