"""Decisions that real use has shown to be wrong or misleading, each with the right answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.decide import decide
from advisor.evidence import CapacityPoint, Evidence
from advisor.legs import questions
from advisor.legs.safe import safe_leg
from advisor.legs.speed import speed_leg
from advisor.policy import Policy
from advisor.verdict import ArmVerdict, Decision
from advisor.whole import assess
from tests.advisor.cases import BF16, FP8, bare, compared
from tests.advisor.worlds import Noise

QUIET = Noise(call=0.05, wander=0.02, phi=0.3, block=0.005)


def server(decision: Decision, arm: str = "fp8") -> ArmVerdict:
    return next(each for each in decision.server if each.arm == arm)


def searched(evidence: Evidence, **agents: int) -> Evidence:
    """Add a capacity search in which each arm holds so many agents and breaks at one more."""
    points = tuple(
        CapacityPoint(arm=arm, agents=each, turns=4000, within_slo=4000 if each <= most else 3000, minutes=15.0, pool_filled=True)
        for arm, most in agents.items()
        for each in (most, most + 1)
    )
    return replace(evidence, capacity=points)


@pytest.mark.parametrize("effect", [-0.045, -0.06])
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("capacity", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_interval_that_is_printed_is_the_one_that_decides(effect: float, others: int, capacity: bool, seed: int) -> None:  # noqa: FBT001
    evidence = compared(effect=effect, pairs=8, noise=QUIET, seed=seed)
    evidence = replace(evidence, arms=(BF16, FP8, *(replace(FP8, name=f"other-{each}") for each in range(others))))
    decision = decide(searched(evidence, bf16=9, fp8=9) if capacity else evidence)
    case = assess(searched(evidence, bf16=9, fp8=9) if capacity else evidence, Policy())
    pays = speed_leg(case, "fp8", None).leg
    assert pays.estimate is not None
    assert pays.estimate.high is not None
    assert (pays.state == "yes") == (pays.estimate.high < -0.03)
    assert pays.estimate.level == pytest.approx(1 - 0.05 / (1 + others) / (2 if capacity else 1))
    assert next(each.relative for each in decision.changes if each.arm == "fp8" and each.workload is None) is not None
    assert pays.estimate in [each.relative for each in decision.changes]
    verdict = server(decision)
    assert not any("surely below" in each for each in verdict.flips) or pays.state == "unclear"


@pytest.mark.parametrize("items", range(90, 330, 40))
def test_answers_are_as_good_exactly_where_the_interval_that_is_printed_says_so(items: int) -> None:
    leg = safe_leg(assess(compared(effect=-0.1, items=items), Policy()), "fp8", None).leg
    assert leg.estimate is not None
    assert leg.estimate.low is not None
    assert (leg.state == "yes") == (leg.estimate.low > -0.03)


def _between(evidence: Evidence) -> bool:
    """Say whether both criteria are proven, and neither would be if they shared the error."""
    case = assess(evidence, Policy())
    return all(0.0125 < (each.p_for or 0.0) < 0.025 for each in (speed_leg(case, "fp8", None), safe_leg(case, "fp8", None)))


def test_two_criteria_that_are_both_needed_do_not_share_the_error() -> None:
    drawn = (compared(effect=-0.05, pairs=8, items=170, seed=seed, noise=QUIET) for seed in range(400))
    evidence = next(each for each in drawn if _between(each))
    assert server(decide(evidence)).verdict == "use"


def test_every_number_of_items_has_its_minutes_and_its_cost() -> None:
    need = questions.first(assess(bare(), Policy()), "fp8", "chat")
    # 1,198 items of 8k to 128k at 10,000 tokens a second, on two GPUs at 3 USD an hour.
    assert need.minutes is not None
    assert need.minutes == pytest.approx((need.pairs or 0) * sum((8, 16, 32, 64, 128)) * 1024 / 5 / 10_000 / 60)
    assert need.usd == pytest.approx(2 * 3.0 * need.minutes / 60)
