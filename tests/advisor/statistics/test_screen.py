"""The screen's statistic on simulated truths: inside
its envelope, a uniform shift, a step, and garbage.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from advisor.evidence import Screened
from advisor.statistics.screen import FLOOR, is_broken, screening, shift

LENGTHS = (8192.0, 16384.0, 32768.0, 65536.0, 131072.0)


def rows(
    rng: np.random.Generator,
    times: dict[float, float],
    *,
    prompts: int = 8,
    agreement: float = 0.9,
    own: float = 0.01,
) -> list[Screened]:
    """Prompts differ by a factor, which they share with the
    reference's own distances; each distance scatters besides.
    """
    out = []
    for prompt in range(prompts):
        base = own * rng.lognormal(0, 0.5)
        for length, factor in times.items():
            mine, *selves = base * rng.lognormal(0, 0.2, 4)
            out.append(
                Screened(
                    arm="fp8",
                    prompt=prompt,
                    length=length,
                    variation=mine * factor,
                    own=tuple(selves),
                    agreement=agreement,
                    cached=0.99,
                )
            )
    return out


def share(
    pattern: str, times: dict[float, float], *, draws: int = 80, at: float | None = None
) -> float:
    found = [
        screening(rows(np.random.default_rng(draw), times), alpha=0.05) for draw in range(draws)
    ]
    return float(np.mean([each.pattern == pattern and each.at == at for each in found]))


@pytest.mark.slow
def test_an_arm_that_is_as_far_as_the_reference_from_itself_is_inside_in_nineteen_of_twenty() -> (
    None
):
    assert share("inside", dict.fromkeys(LENGTHS, 1.0)) >= 0.95


@pytest.mark.slow
def test_a_shift_at_every_length_is_uniform() -> None:
    assert share("uniform", dict.fromkeys(LENGTHS, 2.0)) >= 0.9


def test_a_step_is_found_at_its_length() -> None:
    assert (
        share("step", dict(zip(LENGTHS, (1.0, 1.0, 1.0, 6.0, 6.0), strict=True)), at=65536.0)
        >= 0.95
    )


@pytest.mark.parametrize(
    ("agreement", "factor", "expected"),
    [(0.05, 50.0, True), (0.499, 50.0, True), (0.5, 50.0, False), (0.05, 5.0, False)],
)
def test_broken_is_by_size_on_three_prompts_both_in_agreement_and_in_distance(
    agreement: float, factor: float, *, expected: bool
) -> None:
    few = rows(np.random.default_rng(0), {131072.0: factor}, prompts=3, agreement=agreement)
    assert is_broken(few) is expected
    assert not is_broken(few[:2])


def test_where_ten_times_its_own_is_more_than_can_be_nearly_all_is_far_and_an_unsteady_reference_tells_nothing() -> (
    None
):
    far = [
        Screened(
            arm="fp8", prompt=n, length=8192.0, variation=0.95, own=(0.12, 0.1, 0.11), agreement=0.0
        )
        for n in range(3)
    ]
    assert is_broken(far)
    assert not is_broken([replace(row, own=(0.4, 0.4, 0.4)) for row in far])


def test_a_length_where_answers_are_broken_ends_the_screen_whatever_the_others_say() -> None:
    draw = np.random.default_rng(1)
    found = screening(
        [*rows(draw, {8192.0: 1.0}), *rows(draw, {131072.0: 80.0}, prompts=3, agreement=0.0)],
        alpha=0.05,
    )
    assert (found.pattern, found.at) == ("broken", 131072.0)
    assert found.ranked == (131072.0, 8192.0)


def test_servers_that_equal_themselves_exactly_have_a_floor() -> None:
    same = Screened(
        arm="fp8", prompt=0, length=8192.0, variation=0.0, own=(0.0, 0.0, 0.0), agreement=1.0
    )
    assert shift(same) == 0
    far = [
        Screened(
            arm="fp8",
            prompt=prompt,
            length=8192.0,
            variation=0.02,
            own=(0.0, 0.0, 0.0),
            agreement=1.0,
        )
        for prompt in range(8)
    ]
    assert shift(far[0]) == pytest.approx(np.log10(0.02 / FLOOR))
    assert screening(far, alpha=0.05).pattern == "uniform"
    assert screening([same], alpha=0.05).pattern == "few"


@pytest.mark.parametrize("prompts", [8, 13, 40])
@pytest.mark.parametrize("is_tied", [False, True])
def test_the_p_value_of_a_length_is_that_of_wilcoxons_exact_test(
    *, prompts: int, is_tied: bool
) -> None:
    rng = np.random.default_rng(prompts)
    times = rng.lognormal(0.3, 1.0, prompts)
    drawn = [
        replace(row, variation=each * 0.01, own=(0.01,))
        for row, each in zip(
            rows(rng, {8192.0: 1.0}, prompts=prompts),
            times.round(0) if is_tied else times,
            strict=True,
        )
    ]
    shifts = [each for each in map(shift, drawn) if each != 0]
    assert (len(shifts) < prompts) is is_tied
    wanted = scipy.stats.wilcoxon(shifts, alternative="greater", method="exact")
    assert screening(drawn, alpha=0.05).lengths[0].p == wanted.pvalue


def test_prompts_that_are_all_as_far_as_the_reference_is_from_itself_are_inside() -> None:
    drawn = [
        replace(row, variation=0.01, own=(0.01,))
        for row in rows(np.random.default_rng(0), {8192.0: 1.0})
    ]
    assert screening(drawn, alpha=0.05).lengths[0].p == 1.0
