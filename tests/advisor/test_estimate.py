from __future__ import annotations

from dataclasses import replace

from advisor.estimate import Estimate

HALF = Estimate(value=-0.05, low=-0.08, high=-0.02, n=12, unit="relative", method="m")


def test_an_interval_lies_above_below_within_or_across() -> None:
    assert (HALF.is_below(0.0), HALF.is_below(-0.05), HALF.is_above(-0.1), HALF.is_within(0.1), HALF.is_within(0.05)) == (
        True,
        False,
        True,
        True,
        False,
    )


def test_an_open_end_is_never_cleared() -> None:
    opened = replace(HALF, high=None)
    assert (opened.is_below(1.0), opened.is_within(1.0), opened.is_above(-0.1)) == (False, False, True)


def test_scaling_by_a_negative_factor_turns_the_ends_round() -> None:
    assert replace(HALF, high=None).scaled(-100, unit="%") == replace(HALF, value=5.0, low=None, high=8.0, unit="%")
