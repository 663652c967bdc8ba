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


def test_the_inverse_turns_the_ends_round_and_opens_one_that_is_not_above_zero() -> None:
    pace = replace(HALF, value=0.5, low=0.25, high=1.0)
    assert pace.inverse(2.0, unit="s") == replace(HALF, value=4.0, low=2.0, high=8.0, unit="s")
    assert replace(pace, low=-0.1).inverse(2.0, unit="s", method="n") == replace(HALF, value=4.0, low=2.0, high=None, unit="s", method="n")
