import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import words
from advisor.estimate import Estimate
from agentload.report import format as say
from agentload.study.quantity import number


def estimate(
    value: float, low: float | None, high: float | None, unit: str = "relative"
) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=12, unit=unit, method="block pairs")


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (estimate(-0.06, -0.079, -0.041), "−6.0% [−7.9, −4.1]"),
        (estimate(-0.09, -0.13, -0.05), "−9.0% [−13.0, −5.0]"),
        (estimate(0.0, None, None), "0.0%"),
        (estimate(-0.06, None, -0.02), "−6.0% (at most −2.0)"),
        (estimate(0.004, 0.001, None), "+0.4% (at least +0.1)"),
        (estimate(0.0004, 0.0001, 0.0007), "+0.040% [+0.010, +0.070]"),
        (estimate(math.nan, None, None), "–"),
        (None, "–"),
    ],
)
def test_a_change_shows_its_sign_and_one_decimal_unless_its_interval_is_too_narrow_for_it(
    each: Estimate | None, text: str
) -> None:
    assert say.change(each) == text


def test_figures_that_are_compared_have_the_decimals_of_the_least_certain() -> None:
    slow, quick = estimate(1_580.0, 1_500.0, 1_660.0, "ms"), estimate(940.0, 910.0, 970.0, "ms")
    assert [say.estimate(each, among=(slow, quick)) for each in (slow, quick)] == [
        "1.58 s [1.50, 1.66]",
        "0.94 s [0.91, 0.97]",
    ]


def test_a_difference_of_shares_is_told_in_points() -> None:
    assert say.points(estimate(-0.006, -0.022, 0.010, "share")) == "−0.6 pp [−2.2, +1.0]"
    few = estimate(0.0, -0.93, 0.93, "share")
    assert say.points(few) == "0.0 pp (too few questions for an interval)"


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (estimate(340.2, 321.0, 362.0, "ms"), "340 ms [321, 362]"),
        (estimate(2_340.0, 2_021.0, 2_862.0, "ms"), "2.3 s [2.0, 2.9]"),
        (estimate(0.14, 0.12, 0.16, "ms"), "0.140 ms [0.120, 0.160]"),
        (estimate(4.37e-5, 4.31e-5, 4.43e-5, "ms/token"), "4.37 ×10⁻⁵ ms/token [4.31, 4.43]"),
        (estimate(7_010.0, 2_400.0, 10_500.0, "tokens"), "6.8k [2.3k, 10k]"),
        (estimate(0.813, 0.79, 0.84, "share"), "81.3% [79.0, 84.0]"),
        (estimate(-1.9, -3.9, 0.1, "points"), "−1.9 pp [−3.9, +0.1]"),
        (estimate(450.3, 440.2, 460.1, "tokens/s"), "450 tokens/s [440, 460]"),
        (estimate(12.0, None, None, ""), "12"),
    ],
)
def test_an_estimate_is_told_in_the_unit_it_is_read_in(each: Estimate, text: str) -> None:
    assert say.estimate(each) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (8, "8"),
        (875, "875"),
        (999.6, "1.0k"),
        (7_010, "6.8k"),
        (10_200, "10k"),
        (31_000, "30k"),
        (8_192, "8k"),
        (8_200, "8.0k"),
        (116_319, "114k"),
        (131_072, "128k"),
        (1_048_576, "1M"),
        (1_200_000, "1.1M"),
        (None, "–"),
    ],
)
def test_token_counts_are_short_and_k_is_what_it_is_where_lengths_are_typed(
    count: float | None, text: str
) -> None:
    assert say.tokens(count) == text


def test_a_length_reads_alike_in_a_table_and_in_a_sentence() -> None:
    assert number("114k", "--contexts", unit="tokens") == 114 * words.K
    for count in (8_192, 20_000, 116_319, 116_736, 452_032):
        assert (
            say.tokens(count) == words.length(count) == words.tokens(count).replace("8,192", "8k")
        )


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.14, "0.14 ms"),
        (7.84, "7.84 ms"),
        (340, "340 ms"),
        (999.9, "1 s"),
        (2_123, "2.12 s"),
        (130_000, "2.17 min"),
        (8e6, "2.22 h"),
    ],
)
def test_a_duration_chooses_its_unit(ms: float, text: str) -> None:
    assert say.duration(ms) == text


@pytest.mark.parametrize(
    ("minutes", "text"), [(0.5, "30 s"), (7.2, "7 min"), (150, "2.5 h"), (None, "–")]
)
def test_minutes_are_told_as_a_budget(minutes: float | None, text: str) -> None:
    assert say.minutes(minutes) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.81, "81%"), (0.004, "0.4%"), (0.998, "99.8%"), (1.0, "100%"), (0.0, "0%")],
)
def test_a_share_near_an_end_keeps_a_decimal(share: float, text: str) -> None:
    assert say.percent(share) == text


@given(value=st.floats(-1, 1), half=st.floats(1e-4, 0.5))
def test_a_change_never_contradicts_its_interval(value: float, half: float) -> None:
    words = say.change(estimate(value, value - half, value + half))
    middle, low, high = (
        float(part.replace(say.MINUS, "-").strip("[], %"))
        for part in words.replace(" %", "").split()
    )
    assert low <= middle <= high
    assert abs(middle - 100 * value) <= (
        0.0501 if half > 0.99e-3 else 10 ** -say.decimals(100 * half)
    )


@given(st.floats(-1e9, 1e9))
def test_no_number_is_printed_with_a_hyphen_or_as_minus_zero(value: float) -> None:
    words = say.number(value, 2)
    assert "-" not in words
    assert words != "−0.00"
    assert float(words.replace(say.MINUS, "-").replace(",", "")) == pytest.approx(
        value, abs=0.005001
    )


@given(low=st.floats(1e-3, 1e6), step=st.sampled_from([0.01, 0.5, 1.0, 20.0, 1000.0]))
def test_two_ticks_a_step_apart_never_read_the_same(low: float, step: float) -> None:
    ticks = [round(low / step) * step, (round(low / step) + 1) * step]
    assert say.tick("ms", ticks[0], step) != say.tick("ms", ticks[1], step)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("turn latency -6.0% [-7.9%, -4.1%]", "turn latency −6.0% [−7.9, −4.1]"),
        ("accuracy -0.6 pp [-2.2, +1.0] up to 128k", "accuracy −0.6 pp [−2.2, +1.0] up to 128k"),
        ("[open, +1.0%]", "[open, +1.0]"),
        (
            "89% of fp8-skip-sw (sm-90, H100-80GB) at 2026-11-20",
            "89% of fp8-skip-sw (sm-90, H100-80GB) at 2026-11-20",
        ),
        ("accuracy, fp8 - bf16 > -.5 pp", "accuracy, fp8 − bf16 > −.5 pp"),
    ],
)
def test_a_sentence_is_set_as_the_figures_around_it(told: str, text: str) -> None:
    assert say.typeset(told) == text


def test_a_figure_that_is_zero_without_any_spread_is_printed() -> None:
    zero = estimate(0.0, 0.0, 0.0, unit="tokens/s")
    assert say.estimate(zero, among=[zero, None]) == "0 tokens/s [0, 0]"


@pytest.mark.parametrize(
    ("times", "texts"),
    [
        ((14.0, 14.41), ("14.0 ms", "14.4 ms")),
        ((24_100.0, 239.0), ("24.1 s", "239 ms")),
        ((1_120.0, 950.0), ("1.12 s", "0.95 s")),
        ((900.0, None), ("900 ms", None)),
        ((None,), (None,)),
    ],
)
def test_times_that_are_compared_share_a_unit_unless_they_differ_tenfold(
    times: tuple[float | None, ...], texts: tuple[str | None, ...]
) -> None:
    assert say.durations(times) == texts


def test_numbers_that_are_compared_have_the_decimals_of_the_largest() -> None:
    assert say.numbers((0.1014, 0.0994, None)) == ("0.101", "0.099", None)
    assert say.numbers((312.6, 98.72)) == ("313", "99")
    assert say.numbers((312.6, 4.87)) == ("313", "4.87")
    assert say.numbers((None, 0.0)) == (None, "0")


def test_intervals_of_times_that_differ_tenfold_have_units_of_their_own() -> None:
    slow, quick = estimate(44_000.0, 40_000.0, 48_000.0, "ms"), estimate(239.0, 229.0, 249.0, "ms")
    texts = [say.estimate(each, among=(slow, quick)) for each in (slow, quick)]
    assert texts == ["44 s [40, 48]", "239 ms [229, 249]"]


@pytest.mark.parametrize(
    ("each", "text"),
    [
        (estimate(1_094.2, 1_091.0, 1_097.4, "tokens/s"), "1,094 tokens/s [1,091, 1,097]"),
        (estimate(7.027, 7.005, 7.049, "ms"), "7.03 ms [7.00, 7.05]"),
        (estimate(0.01394, None, None, "share"), "1.4%"),
        (estimate(0.0381, None, None, "ms"), "0.038 ms"),
    ],
)
def test_no_figure_has_more_digits_than_anybody_reads(each: Estimate, text: str) -> None:
    assert say.estimate(each) == text


@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [(5.0003, 5.0, "5.0003 ms"), (4.2, 5.0, "4.2 ms"), (5.0, 5.0, "5 ms"), (5.1, None, "5.1 ms")],
)
def test_a_value_that_would_read_as_its_limit_has_more_digits(
    value: float, limit: float | None, text: str
) -> None:
    assert say.apart_from(limit, value, say.duration) == text
