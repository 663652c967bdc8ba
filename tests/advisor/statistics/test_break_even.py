from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from advisor.statistics import line
from advisor.statistics.break_even import break_even, difference_grid, fieller
from advisor.statistics.line import FittedLine
from tests.advisor.published import ITL_MS, plotted_sweep
from tests.advisor.worlds import simulated_sweep


@pytest.mark.parametrize(
    ("deployment", "arm", "tokens", "low", "high"),
    [
        ("llama-h100", "fp8", 6629, 2401, 10489),
        ("llama-b200", "fp8", 3220, -6214, 10995),
        ("gpt-oss-b200", "fp8", 28299, 21705, 34393),
        ("gpt-oss-h100", "fp8", 13066, -1248, 23954),
        ("gpt-oss-h100", "fp8-skip-sw", -6547, -36226, 11355),
    ],
)
def test_the_published_points_give_the_fieller_sets_of_an_unweighted_refit(
    deployment: str, arm: str, tokens: float, low: float, high: float
) -> None:
    reference, challenger = (
        plotted_sweep("bf16", ITL_MS[deployment, "bf16"]),
        plotted_sweep(arm, ITL_MS[deployment, arm]),
    )
    grids = difference_grid(reference, challenger, 1)
    assert grids is not None
    fitted = line.fit(grids[0], np.ones(grids[0].lengths.size))
    assert fitted is not None
    found = fieller(fitted)
    assert found.shape == "interval"
    assert [
        round(-fitted.intercept / fitted.slope),
        round(found.low),
        round(found.high),
    ] == pytest.approx([tokens, low, high], abs=5)


def test_an_arm_below_the_reference_at_every_plotted_length_has_no_crossing_but_an_upper_end() -> (
    None
):
    found = break_even(
        plotted_sweep("bf16", ITL_MS["gpt-oss-h100", "bf16"]),
        plotted_sweep("fp8-skip-sw", ITL_MS["gpt-oss-h100", "fp8-skip-sw"]),
        users=1,
    )
    assert found is not None
    assert (found.shape, found.tokens, found.low, found.ahead) == ("bounded", None, 0.0, "above")


def _line(*, intercept: float, slope: float, error: float, slope_error: float) -> FittedLine:
    return FittedLine(
        intercept=intercept,
        slope=slope,
        var_intercept=error**2,
        var_slope=slope_error**2,
        covariance=0.0,
        df=30,
        pairs=31,
        lengths=9,
        lack_of_fit_p=None,
    )


@pytest.mark.parametrize(
    ("fitted", "shape"),
    [
        (_line(intercept=0.14, slope=-2e-5, error=0.01, slope_error=1e-6), "interval"),
        (_line(intercept=0.14, slope=-2e-5, error=0.01, slope_error=2e-5), "rays"),
        (_line(intercept=0.001, slope=-1e-6, error=0.01, slope_error=2e-5), "line"),
    ],
)
def test_the_set_is_an_interval_two_rays_or_the_whole_line(fitted: FittedLine, shape: str) -> None:
    found = fieller(fitted)
    assert found.shape == shape
    assert math.isinf(found.high) == (shape == "line")


@pytest.mark.parametrize(
    ("intercepts", "slopes", "noise", "expected"),
    [
        ((6.44, 6.58), (4.37e-5, 2.37e-5), 0.01, "bounded"),
        ((5.2, 4.9), (5.3e-5, 3.6e-5), 0.01, "always"),
        ((6.0, 6.6), (4e-5, 4e-5), 0.01, "none"),
        ((6.0, 6.0), (4e-5, 4e-5), 0.05, "unclear"),
        ((4.0, 4.2), (8.9e-6, 7.6e-6), 0.06, "half-line"),
    ],
)
def test_each_truth_gives_its_shape_in_most_runs(
    intercepts: tuple[float, float], slopes: tuple[float, float], noise: float, expected: str
) -> None:
    rng = np.random.default_rng(5)
    shapes = Counter[str]()
    for _ in range(60):
        reference, arm = (
            simulated_sweep(rng, arm=name, intercept=intercept, slope=slope, noise=noise)
            for name, intercept, slope in zip(("bf16", "fp8"), intercepts, slopes, strict=True)
        )
        found = break_even(reference, arm, users=1)
        assert found is not None
        shapes[found.shape] += 1
    assert shapes.most_common(1)[0][0] == expected, shapes


@pytest.mark.slow
def test_the_set_covers_the_true_break_even_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    truth, covered, runs = (6.58 - 6.44) / (4.37e-5 - 2.37e-5), 0, 400
    for _ in range(runs):
        reference = simulated_sweep(rng, arm="bf16", intercept=6.44, slope=4.37e-5, noise=0.02)
        arm = simulated_sweep(rng, arm="fp8", intercept=6.58, slope=2.37e-5, noise=0.02)
        found = break_even(reference, arm, users=1)
        assert found is not None
        covered += found.shape != "bounded" or (found.low or 0.0) <= truth <= (
            found.high or math.inf
        )
    assert 0.92 <= covered / runs <= 0.98


def test_the_break_even_of_a_batch_is_shared_by_its_requests() -> None:
    rng = np.random.default_rng(3)
    reference = simulated_sweep(rng, arm="bf16", intercept=6.44, slope=4.37e-5, pairs=12)
    arm = simulated_sweep(rng, arm="fp8", intercept=6.58, slope=2.37e-5, pairs=12)
    alone, in_eight = (
        break_even(reference, arm, users=1),
        break_even(reference, arm, users=1, own_users=8),
    )
    assert alone is not None
    assert in_eight is not None
    assert alone.tokens == in_eight.tokens
    assert alone.own_tokens is not None
    assert in_eight.own_tokens == pytest.approx(alone.own_tokens / 8)


def test_two_lengths_are_no_line() -> None:
    points = {2048: 6.0, 8192: 6.5}
    assert break_even(plotted_sweep("bf16", points), plotted_sweep("fp8", points), users=1) is None
