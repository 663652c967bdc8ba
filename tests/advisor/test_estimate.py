from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.estimate import Estimate

HALF = Estimate(value=-0.05, low=-0.08, high=-0.02, n=12, unit="relative", method="m")


def test_an_interval_lies_above_below_within_or_across() -> None:
    assert (
        HALF.is_below(0.0),
        HALF.is_below(-0.05),
        HALF.is_above(-0.1),
        HALF.is_within(0.1),
        HALF.is_within(0.05),
    ) == (True, False, True, True, False)


def test_an_open_end_is_never_cleared() -> None:
    opened = replace(HALF, high=None)
    assert (opened.is_below(1.0), opened.is_within(1.0), opened.is_above(-0.1)) == (
        False,
        False,
        True,
    )


def test_the_inverse_turns_the_ends_round_and_opens_one_that_is_not_above_zero() -> None:
    pace = replace(HALF, value=0.5, low=0.25, high=1.0)
    assert pace.inverse(2.0, unit="s") == replace(HALF, value=4.0, low=2.0, high=8.0, unit="s")
    assert replace(pace, low=-0.1, method="n").inverse(2.0, unit="s") == replace(
        HALF, value=4.0, low=2.0, high=None, unit="s", method="n"
    )


@pytest.mark.parametrize(
    ("found", "mildest", "bound"),
    [
        (
            HALF,
            (-0.3, -0.01),
            replace(HALF, value=-0.01, low=None, high=-0.01),
        ),  # a quarter of the pairs shows less than the interval
        (HALF, (-0.3, -0.1), replace(HALF, value=-0.02, low=None, high=-0.02)),
        (HALF, (-0.3, 0.1), HALF),  # a quarter shows the other side: there is no such bound
        (
            replace(HALF, value=0.05, low=0.02, high=0.08),
            (0.01, 0.3),
            replace(HALF, value=0.01, low=0.01, high=None),
        ),
        (replace(HALF, high=0.02), (-0.3, -0.01), replace(HALF, high=0.02)),
    ],
)
def test_what_is_surely_on_one_side_of_zero_is_bounded_by_the_mildest_of_what_was_seen(
    found: Estimate, mildest: tuple[float, float], bound: Estimate
) -> None:
    assert found.as_bound(mildest) == bound
    assert bound.is_bound == (bound != found)


def test_an_interval_and_an_open_end_elsewhere_are_no_bounds() -> None:
    assert [
        each.is_bound
        for each in (HALF, replace(HALF, high=None), replace(HALF, low=None, high=None))
    ] == [False, False, False]
