"""How estimates, lengths and amounts read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor import words
from advisor.estimate import Estimate

ESTIMATE = Estimate(value=0.0123, low=-0.045, high=0.678, n=5, unit="relative", method="mean")
OPEN = Estimate(value=2.4, low=None, high=None, n=5, unit="ms", method="mean")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (words.percent(0.1234), "+12.3%"),
        (words.percent(-3.0), "-300.0%"),
        (words.change(ESTIMATE), "+1.2% [-4.5%, +67.8%]"),
        (words.change(OPEN), "+240.0% (no bound)"),
        (words.points(replace(ESTIMATE, high=0.4)), "+1.2 pp [-4.5, +40.0]"),
        (words.points(ESTIMATE), "+1.2 pp (too few questions for an interval)"),
        (words.points(replace(ESTIMATE, low=0.001)), "+1.2 pp [+0.1, +67.8]"),
        (words.points(OPEN), "+240.0 pp (no bound)"),
        (
            words.latency(Estimate(value=12.4, low=9.6, high=None, n=3, unit="ms", method="mean")),
            "12 ms (at least 10)",
        ),
        (words.tokens(9_999), "9,999"),
        (words.tokens(10_000), "10k"),
        (words.tokens(1_234_567), "1,206k"),
        (words.length(1023), "1,023"),
        (words.length(1024), "1k"),
        (words.length(131_072), "128k"),
        (words.lengths((4096, 8192, 16384)), "4k..16k"),
        (words.lengths((4096, 8192, 10240)), "4k..10k"),  # the last is as long as it has to be
        (words.lengths((4096, 9216, 16384)), "4k,9k,16k"),
        (words.lengths((4096,)), "4k"),
        (words.lengths((1000, 2000)), "1000..2000"),
        (words.lengths((500, 8192)), "500,8k"),
        (words.bucket("needle", 8192), "needle at 8k"),
        (words.quantity(1.4, "minute"), "1 minute"),
        (words.quantity(1.6, "minute"), "2 minutes"),
        (words.quantity(0, "minute"), "0 minutes"),
        (words.times(1), "once"),
        (words.times(2), "2 times"),
        (words.cost(None, 3.0), ""),
        (words.cost(0.0, 3.0), ""),
        (words.cost(2.0, None), ", 2 min"),
        (words.cost(181.0, 18.09), ", 3 h and 18.09 USD"),
        (words.margin(0.03), "3%"),
        (words.margin(0.025), "2.5%"),
        (words.cost(2.0, 0.5), ", 2 min and 0.50 USD"),
        (words.money(1.0), "1.00 USD"),
        (words.money(0.999), "1.00 USD"),
        (words.money(1234.5), "1,234 USD"),
        (
            words.change(
                Estimate(value=-0.24, low=None, high=-0.24, n=4, unit="relative", method="m")
            ),
            "at least 24.0% less",
        ),
        (
            words.change(
                Estimate(value=0.08, low=0.08, high=None, n=4, unit="relative", method="m")
            ),
            "at least 8.0% more",
        ),
        (
            words.moves(
                Estimate(value=-0.05, low=None, high=-0.05, n=4, unit="relative", method="m")
            ),
            "falls by 5.0% or more",
        ),
        (
            words.moves(
                Estimate(value=0.08, low=0.08, high=None, n=4, unit="relative", method="m")
            ),
            "rises by 8.0% or more",
        ),
        (
            words.moves(
                Estimate(value=0.08, low=0.05, high=0.12, n=4, unit="relative", method="m")
            ),
            "changes by +8.0% [+5.0%, +12.0%]",
        ),
        (words.scope(None), "the mix"),
        (words.scope("chat"), "chat"),
    ],
)
def test_each_figure_reads_in_one_way(said: str, expected: str) -> None:
    assert said == expected


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.95, "95% of"), (1.0, "100% of"), (1.58, "1.6 times"), (55.23, "55 times")],
)
def test_more_than_the_whole_is_no_share(share: float, told: str) -> None:
    assert words.part_of(share) == told
