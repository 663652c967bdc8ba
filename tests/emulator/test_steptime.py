from __future__ import annotations

import math

import numpy as np
import pytest

from agentload.emulator.calls import EngineRequest, Finished
from agentload.emulator.engine import Engine
from agentload.emulator.steptime import ONE, NoiseSource, off
from agentload.model.profile import Episode, Noise
from tests.emulator.arms import small

S = 10**12  # ps


def log_factors(
    noise: Noise, *, count: int, seed: int = 1
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    source = NoiseSource(noise, seed=seed)
    return np.log([source.segment(0).factor / ONE for _ in range(count)])


def test_slow_waves_have_the_stated_spread_and_correlation() -> None:
    waves = log_factors(Noise(sigma=0.05, phi=0.6), count=20_000)
    assert waves.std() == pytest.approx(0.05, rel=0.05)
    assert np.corrcoef(waves[1:], waves[:-1])[0, 1] == pytest.approx(0.6, abs=0.03)
    assert np.exp(waves).mean() == pytest.approx(1.0, abs=0.003)


def test_each_start_draws_a_character_that_lasts() -> None:
    starts = [log_factors(Noise(restart_sigma=0.03), count=2, seed=seed) for seed in range(2000)]
    assert all(first == second for first, second in starts)
    assert np.std([first for first, _ in starts]) == pytest.approx(0.03, rel=0.1)


def test_pauses_come_as_often_as_stated_and_have_a_heavy_tail() -> None:
    source = NoiseSource(Noise(tail_share=0.1, tail_ms=10), seed=1)
    pauses = [source.segment(0).pause_ps / 1e9 for _ in range(20_000)]
    met = [pause for pause in pauses if pause]
    assert len(met) / len(pauses) == pytest.approx(0.1, abs=0.01)
    assert min(met) >= 10
    # Pareto with shape 2: half of the pauses last longer than the scale
    # times the root of two, one in a hundred longer than ten times.
    assert np.median(met) == pytest.approx(10 * math.sqrt(2), rel=0.05)
    assert np.quantile(met, 0.99) == pytest.approx(100, rel=0.25)


def test_drift_and_episodes_follow_the_clock() -> None:
    noise = Noise(drift_per_hour=0.1, episodes=(Episode(from_s=10, until_s=20, factor=2.0),))
    source = NoiseSource(noise, seed=1)
    factors = [source.segment(at * S).factor / ONE for at in (0, 10, 20, 3600)]
    assert factors == pytest.approx([1.0, 2.0 * (1 + 1 / 3600), 1 + 2 / 3600, 1.1], rel=1e-5)


def gaps(noise: Noise, *, seed: int) -> list[float]:
    engine = Engine(small(noise=noise), seed=seed)
    engine.submit(EngineRequest("a", (("text", 50),), 500), 0)
    done: list[Finished] = []
    while (at := engine.next_ns()) is not None:
        done += [event for event in engine.advance(at) if isinstance(event, Finished)]
    return list(np.diff(done[0].token_ns))


def test_seeds_tell_machines_apart_and_the_silent_one_is_the_formula() -> None:
    noise = Noise(sigma=0.02, phi=0.5, tail_share=0.2, tail_ms=5)
    assert gaps(noise, seed=1) == gaps(noise, seed=1) != gaps(noise, seed=2)
    assert gaps(off(small(noise=noise)).noise, seed=1) == gaps(Noise(), seed=2)


def test_a_server_that_is_started_again_is_another_machine() -> None:
    source = NoiseSource(Noise(restart_sigma=0.05), seed=1)
    before = source.segment(0).factor
    source.restart()
    assert source.segment(0).factor != before


def test_two_arms_of_equal_seed_are_two_machines() -> None:
    noise = Noise(sigma=0.02, phi=0.5, restart_sigma=0.05)
    assert NoiseSource(noise, seed=1, name="bf16").segment(0) != NoiseSource(
        noise, seed=1, name="fp8"
    ).segment(0)
