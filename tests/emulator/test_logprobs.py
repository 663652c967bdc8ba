"""The distributions of the emulated model: equal where
nothing differs, off by as much as the profile says.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.emulator.logprobs import (
    Listed,
    behind,
    likeliest_words,
    of_answer,
    of_prompt,
    within,
)
from agentload.model.profile import ArmProfile, Logprobs
from tests.serve.arms import arm

WORDS = st.lists(
    st.sampled_from(["also", "area", "arts", "auto", "away", "axis"]), min_size=5, max_size=60
)
EXACT = arm(name="bf16")


def off(**said: float) -> ArmProfile:
    # whole numbers are given where they are wanted
    return replace(EXACT, name="fp8", logprobs=Logprobs(**said))  # type: ignore[arg-type]


def rows(
    of: ArmProfile, words: list[str], *, company: int = 0, tokens: int | None = None
) -> list[Listed]:
    at = behind([" ".join(words)], ["", ""], len(words) if tokens is None else tokens)
    return likeliest_words(of, at, seed=1, company=company, most=20)


def apart(one: list[Listed], other: list[Listed]) -> float:
    """The mean total variation over what is listed."""
    both = [(dict(mine), dict(theirs)) for mine, theirs in zip(one, other, strict=True)]
    sums = [
        sum(abs(math.exp(a.get(w, -99)) - math.exp(b.get(w, -99))) for w in {*a, *b}) / 2
        for a, b in both
    ]
    return float(np.mean(sums))


@given(WORDS)
@settings(max_examples=30)
def test_a_distribution_sums_to_less_than_one_and_is_listed_from_the_likeliest(
    words: list[str],
) -> None:
    for row in rows(EXACT, words):
        values = [value for _, value in row]
        assert values == sorted(values, reverse=True)
        assert 0 < sum(map(math.exp, values)) < 1
        assert len({word for word, _ in row}) == 20


@given(WORDS)
@settings(max_examples=30)
def test_without_noise_a_server_equals_itself_under_another_salt_and_in_company(
    words: list[str],
) -> None:
    assert rows(EXACT, words) == rows(EXACT, ["salt", *words]) == rows(EXACT, words, company=7)


def test_company_and_salt_move_what_a_noisy_server_says_and_nothing_moves_an_equal_request() -> (
    None
):
    noisy, words = off(batch=0.05), ["also", "area", "arts", "auto"] * 8
    assert rows(noisy, words) == rows(noisy, words)
    assert 0 < apart(rows(noisy, words), rows(noisy, words, company=3)) < 0.1
    assert 0 < apart(rows(noisy, words), rows(noisy, ["salt", *words])) < 0.1


@pytest.mark.parametrize(("small", "large"), [(0.02, 0.1), (0.1, 0.5), (0.5, 5.0)])
def test_a_larger_error_is_a_larger_distance(small: float, large: float) -> None:
    words = ["also", "area", "arts", "auto", "away"] * 8
    base = rows(EXACT, words)
    assert (
        0 < apart(base, rows(off(error=small), words)) < apart(base, rows(off(error=large), words))
    )


def test_a_kernel_breaks_from_a_length_on() -> None:
    broken, words = (
        off(error=0.0, broken_from=1000, broken_error=6.0),
        ["also", "area", "arts", "auto", "away"] * 8,
    )
    assert apart(rows(EXACT, words, tokens=900), rows(broken, words, tokens=900)) == 0
    assert apart(rows(EXACT, words, tokens=1000), rows(broken, words, tokens=1000)) > 0.3


def test_the_token_of_an_answer_is_the_likeliest_and_that_of_a_prompt_as_likely_as_it_is() -> None:
    row: Listed = (("also", -0.5), ("area", -1.5), ("arts", -2.5))
    assert of_answer(row, " zone", most=2) == ((" zone", -0.5), (" also", -1.5))
    assert of_answer(row, "also", most=3) == (("also", -0.5), (" area", -1.5), (" arts", -2.5))
    assert of_prompt(row, "arts") == (("arts", -2.5), (" also", -0.5), (" area", -1.5))
    assert of_prompt(row, "zone")[0] == ("zone", -3.5)


def test_what_stands_within_a_prompt_is_what_stands_behind_its_start() -> None:
    words = ["also", "area", "arts", "auto", "away", "axis"]
    inside = likeliest_words(EXACT, within(words), seed=1, company=0, most=3)
    assert len(inside) == len(words) - 1
    assert (
        inside[4]
        == likeliest_words(
            EXACT, behind([" ".join(words[:5])], [""], 5), seed=1, company=0, most=3
        )[0]
    )
