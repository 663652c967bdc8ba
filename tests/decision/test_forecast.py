"""What a budget can settle: more with more of it, and never more than it pays for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.decide import decide
from agentload.cli._decide import forecast_text as as_text
from agentload.decision.forecast import Forecast, LookPrice, Terms, forecast, gains_shown
from agentload.decision.look import DRAWS, ITEMS, PAIRS, Look
from agentload.study.kinds import Decide
from agentload.study.parts import TraceRef, Virtual
from tests.advisor.cases import bare, observed
from tests.decision.deployments import first_pairs
from tests.decision.forecasts import (
    POLICY,
    PROMISED,
    SAME,
    first_shown,
    of_answers,
    of_pairs,
    played,
)

MINUTES = {"speed": 1.5, "capacity": 10.0 / DRAWS[0], "accuracy": 0.05}


def price(stage: Look) -> LookPrice:
    return LookPrice(minutes=MINUTES[stage.criterion] * stage.amount)


def foretold(
    budget: float, *, capacity: bool = True, starts: int | None = 1
) -> tuple[Forecast, ...]:
    terms = Terms(
        budget_minutes=budget,
        min_change=0.03,
        accuracy_margin=0.03,
        together=4,
        capacity=capacity,
        starts=starts,
    )
    return forecast(price, terms)


@pytest.mark.slow
@given(budget=st.floats(30, 2000))
def test_what_is_promised_fits_into_the_budget(budget: float) -> None:
    looks = foretold(budget)
    assert sum(each.price.minutes for each in looks) <= budget
    assert all(0 <= chance <= 1 for each in looks for _, chance in each.chances)


@pytest.mark.slow
@given(budget=st.floats(30, 1000), larger=st.floats(1.7, 20))
def test_a_budget_that_is_much_larger_promises_no_less(budget: float, larger: float) -> None:
    """A third goes to pairs, and a seventh to step times: what one
    more pair takes from the answers is less than 0.7 of a budget adds.
    """
    for small, large in zip(foretold(budget), foretold(budget * larger), strict=True):
        assert large.amount >= small.amount
        assert all(
            one[1] <= other[1] + 1e-12
            for one, other in zip(small.chances, large.chances, strict=True)
        )


def test_the_least_that_says_anything_is_priced_even_where_the_budget_is_too_small() -> None:
    speed, twins, search, answers = foretold(1.0)
    assert (speed.amount, twins.amount, search.amount, answers.amount) == (
        PAIRS[0],
        1,
        DRAWS[0],
        ITEMS[0],
    )


@pytest.mark.slow
def test_one_start_a_pair_settles_what_one_start_cannot() -> None:
    once, each_pair = (dict(foretold(300, starts=starts)[0].chances) for starts in (1, None))
    assert once["6% faster"] < 0.15
    assert each_pair["6% faster"] > 0.7


@pytest.mark.slow
def test_more_replicas_settle_more() -> None:
    chances = [dict(gains_shown(0.03, pairs=16, starts=starts))["6% faster"] for starts in (1, 4)]
    assert chances[1] > 2 * chances[0]


def test_every_look_may_show_a_gain_and_rivals_share_the_error() -> None:
    few, many, shared = (
        gains_shown(0.03, pairs=pairs, starts=1, rivals=rivals)
        for pairs, rivals in ((4, 1), (8, 1), (8, 3))
    )
    for one, other in ((few, many), (shared, many)):
        assert all(mine[1] < theirs[1] for mine, theirs in zip(one, other, strict=True))


@pytest.mark.slow
def test_servers_that_start_alike_settle_what_others_leave_open() -> None:
    alike, usual = (
        dict(gains_shown(0.03, pairs=12, starts=1, start_spread=spread)) for spread in (0.0, 0.015)
    )
    assert usual["6% faster"] < 0.15
    assert alike["6% faster"] > 0.4


@pytest.mark.slow
@pytest.mark.parametrize("each", [False, True])
def test_what_chances_are_compared_with_is_what_a_decision_says(*, each: bool) -> None:
    rng = np.random.default_rng(5)
    for _ in range(4):
        reference, arm = calls = played(SAME, rng, starts_each_pair=each)
        faster = replace(
            arm,
            turn_ms=(1 - 0.12) * arm.turn_ms,
            ttft_ms=np.full(len(arm), np.nan),
            tpot_ms=np.full(len(arm), np.nan),
        )
        said = (
            decide(
                bare(
                    kind="measured",
                    observations=observed(first_pairs(reference, look), first_pairs(faster, look)),
                ),
                POLICY,
            )
            for look in PAIRS
        )
        assert first_shown(calls)[-1] == next(
            look
            for look, found in zip(PAIRS, said, strict=False)
            if found.server[0].pays.state == "yes"
        )


@pytest.mark.slow
def test_chances_are_the_shares_of_simulated_decisions() -> None:
    draws = 150
    off = PROMISED[True] + 2.5 * math.sqrt(0.25 / draws)
    speed = [row[-2:] for row in of_pairs(draws, noises=[SAME])]
    answers = [row[-2:] for row in of_answers(draws, resembling=[SAME])]
    assert all(abs(printed - share) < off for printed, share in (*speed, *answers))


def test_capacity_is_priced_only_where_it_is_asked_for() -> None:
    assert [each.criterion for each in foretold(100, capacity=False)] == ["speed", "accuracy"]


@pytest.mark.parametrize(
    ("budget", "said"),
    [(300.0, "of a budget of 300; it ends"), (12.0, "of a budget of 12, 8 more than there is")],
)
def test_parts_that_take_more_than_the_budget_are_said_to(budget: float, said: str) -> None:
    study = Decide(
        traces=(TraceRef(path="chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100"),
        budget_s=60 * budget,
    )
    assert said in as_text(study, foretold(budget))


def test_every_arm_has_a_gpu_that_costs() -> None:
    arms = ("bf16", "fp8", "fp8-skip-sw")
    study = Decide(
        traces=(TraceRef(path="chat"),),
        servers=Virtual(profile="gpt-oss-20b-h100", arms=arms),
        budget_s=6000.0,
        price_usd=2.0,
    )
    (speed, *_) = foretold(100.0)
    assert f"{speed.price.minutes / 60 * 3 * 2:.2f}" in as_text(study, foretold(100.0))


def test_what_gpus_cost_is_told_where_their_price_is_known() -> None:
    assert LookPrice(minutes=30.0).usd(2.5, 2) == pytest.approx(2.5)
