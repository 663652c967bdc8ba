"""The load that a twin carries in the long run, where the truth is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from agentload.decision.long_run import DRAWS, KNOWN, long_run

SHARE = 0.95


def carrying(
    limit: float, *, scatter: float, turns: int = 2000, seed: int = 0
) -> Callable[[int, int], tuple[int, int]]:
    """Return plays whose draws move the limit by *scatter*, and the share within it alike."""
    moves = np.random.default_rng(seed).normal(0.0, scatter, DRAWS[-1])

    def play(load: int, number: int) -> tuple[int, int]:
        beyond = math.log(load / limit) - moves[number]
        return turns, round(turns / (1 + math.exp(12 * beyond - math.log(19))))

    return play


@pytest.mark.parametrize("limit", [1.4, 6.0, 10.7, 53.0, 400.5])
@pytest.mark.parametrize("off", [0.8, 1.0, 1.25])
def test_the_load_is_found_from_a_rough_one(limit: float, off: float) -> None:
    found = long_run(carrying(limit, scatter=0.0), off * limit, share=SHARE)
    assert found is not None
    assert found.load == pytest.approx(limit, rel=0.01)
    assert found.error < KNOWN


def test_an_interval_covers_the_load_and_is_no_wider_than_draws_scatter() -> None:
    covered, errors = 0, []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        moves = rng.normal(0.0, 0.03, DRAWS[-1])

        def play(load: int, number: int, moves: np.ndarray = moves) -> tuple[int, int]:
            share = 0.95 - 0.6 * (math.log(load / 30.0) - moves[number])
            return 10_000, round(10_000 * share)

        found = long_run(play, 28.0, share=SHARE)
        assert found is not None
        errors.append(found.error)
        covered += abs(math.log(found.load / 30.0)) <= found.error
    assert covered >= 52
    # Student's t over as many draws as there may be.
    assert np.mean(errors) == pytest.approx(2.2 * 0.03 / math.sqrt(DRAWS[-1]), rel=0.15)


def test_draws_that_differ_little_are_few() -> None:
    played = Counter[int]()

    def counted(load: int, number: int) -> tuple[int, int]:
        played[load] += 1
        return alike(load, number)

    alike = carrying(20.0, scatter=0.002)
    assert long_run(counted, 20.0, share=SHARE) is not None
    assert max(played.values()) == DRAWS[0], "each draw is played at a load once"
    apart = long_run(carrying(20.0, scatter=0.06), 20.0, share=SHARE)
    assert apart is not None
    assert apart.error > KNOWN


def test_a_load_far_from_what_is_known_roughly_is_none() -> None:
    assert long_run(carrying(20.0, scatter=0.0), 8.0, share=SHARE) is None
    assert long_run(carrying(20.0, scatter=0.0), 50.0, share=SHARE) is None
    assert long_run(lambda *_: (100, 0), 1.0, share=SHARE) is None
