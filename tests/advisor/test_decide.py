"""What holds of every decision; the verdicts themselves are in test_worlds.py."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import pytest

from advisor.decide import assess, decide
from advisor.evidence import Evidence
from advisor.legs import questions
from advisor.legs.safe import safe_leg
from advisor.legs.speed import speed_leg
from advisor.policy import Policy, ServiceLimits
from advisor.steps import MorePairs
from advisor.verdict import ArmVerdict, Decision
from tests.advisor.cases import BF16, FP8, bare, compared, sweeps
from tests.advisor.decided import QUIET, mixed, searched


def _verdict(decision: Decision) -> ArmVerdict:
    return next(each for each in decision.server if each.arm == "fp8")


def test_too_few_calls_ask_for_a_number_of_more() -> None:
    verdict = _verdict(decide(compared(effect=-0.03, pairs=4)))
    assert verdict.verdict == "test further"
    need = verdict.needs[0]
    assert need.calls is not None
    assert need.calls > 0
    assert need.minutes is not None
    assert need.minutes > 0
    assert need.step == MorePairs(pairs=4 + (need.pairs or 0))


def test_no_calls_at_all_is_no_verdict_but_a_plan() -> None:
    decision = decide(bare())
    assert _verdict(decision).verdict == "test further"
    assert {need.what for need in decision.needs} == {
        "block pairs of the mix on fp8",
        "block pairs of chat on fp8",
        "paired questions on fp8 at 8k..128k",
    }


def test_a_decision_is_plain_data_without_a_nan() -> None:
    decision = decide(
        replace(compared(effect=-0.1), sweeps=sweeps()),
        Policy(slos=(ServiceLimits(turn_ms=60_000.0),)),
    )
    text = json.dumps(dataclasses.asdict(decision), allow_nan=False)
    assert json.loads(text)["choice"]["arm"] == "fp8"


def test_equal_evidence_gives_an_equal_decision() -> None:
    assert decide(compared(effect=-0.05)) == decide(compared(effect=-0.05))


def test_the_four_lists_are_read_off_the_classes() -> None:
    decision = decide(mixed({"rag": 0.25, "agents": -0.12}))
    assert [verdict.workload for verdict in decision.listed("use")] == ["agents"]
    assert [verdict.workload for verdict in decision.listed("avoid")] == ["rag"]


def test_validity_checks_that_failed_come_first_and_those_without_data_before_those_that_passed() -> (
    None
):
    order = {"fail": 0, "not observed": 1, "pass": 2}
    found = [
        each.status
        for each in decide(
            compared(effect=0.0, health=(), arms=(BF16, replace(FP8, pool_tokens=1.0)))
        ).gates
    ]
    assert set(found) == set(order)
    assert found == sorted(found, key=order.__getitem__)


@pytest.mark.parametrize(
    ("restarts", "said"),
    [(1, "Each server was started once"), (3, "Each server was started 3 times"), (16, None)],
)
def test_starts_that_are_assumed_of_are_told_once_and_those_that_were_seen_not_at_all(
    restarts: int, said: str | None
) -> None:
    caveats = [
        each
        for each in decide(compared(effect=-0.1, pairs=16, restarts=restarts)).caveats
        if "intervals hold" in each
    ]
    assert [each.partition(":")[0] for each in caveats] == ([] if said is None else [said])


@pytest.mark.parametrize("effect", [-0.045, -0.06])
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("capacity", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_the_interval_that_is_printed_is_the_one_that_decides(
    effect: float,
    others: int,
    capacity: bool,  # noqa: FBT001
    seed: int,
) -> None:
    evidence = compared(effect=effect, pairs=8, noise=QUIET, seed=seed)
    evidence = replace(
        evidence, arms=(BF16, FP8, *(replace(FP8, name=f"other-{each}") for each in range(others)))
    )
    decision = decide(searched(evidence, bf16=16, fp8=16) if capacity else evidence)
    case = assess(searched(evidence, bf16=16, fp8=16) if capacity else evidence, Policy())
    pays = speed_leg(case, "fp8", None).leg
    assert pays.estimate is not None
    assert pays.estimate.high is not None
    assert (pays.state == "yes") == (pays.estimate.high < -0.03)
    assert pays.estimate.level == pytest.approx(1 - 0.05 / (1 + others) / (2 if capacity else 1))
    assert (
        next(
            each.relative
            for each in decision.changes
            if each.arm == "fp8" and each.workload is None
        )
        is not None
    )
    assert pays.estimate in [each.relative for each in decision.changes]
    verdict = _verdict(decision)
    assert (
        not any("the whole interval" in each for each in verdict.flips) or pays.state == "unclear"
    )


@pytest.mark.parametrize("items", range(90, 330, 40))
def test_answers_are_as_good_exactly_where_the_interval_that_is_printed_says_so(items: int) -> None:
    leg = safe_leg(assess(compared(effect=-0.1, items=items), Policy()), "fp8", None).leg
    assert leg.estimate is not None
    assert leg.estimate.low is not None
    assert (leg.state == "yes") == (leg.estimate.low > -0.03)


def _between(evidence: Evidence) -> bool:
    """Say whether both criteria are proven, and neither would be if they shared the error."""
    case = assess(evidence, Policy())
    return all(
        0.0125 < (leg(case, "fp8", None).p_for or 0.0) < 0.025 for leg in (speed_leg, safe_leg)
    )


def test_two_criteria_that_are_both_needed_do_not_share_the_error() -> None:
    # No seed before 337 is between.
    drawn = (
        compared(effect=-0.05, pairs=8, items=170, seed=seed, noise=QUIET)
        for seed in range(337, 800)
    )
    evidence = next(each for each in drawn if _between(each))
    assert _verdict(decide(evidence)).verdict == "use"


def test_every_number_of_items_has_its_minutes_and_its_cost() -> None:
    need = questions.first(assess(bare(), Policy()), "fp8", "chat")
    # 1,198 items of 8k to 128k at 10,000 tokens a second, on two GPUs at 3 USD an hour.
    assert need.minutes is not None
    assert need.minutes == pytest.approx(
        (need.pairs or 0) * sum((8, 16, 32, 64, 128)) * 1024 / 5 / 10_000 / 60
    )
    assert need.usd == pytest.approx(2 * 3.0 * need.minutes / 60)


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ({"reasoning": -0.12, "long chat": -0.09, "short chat": 0.005}, "One flag"),
        ({"rag": 0.25, "agents": -0.12}, "Split"),
    ],
)
def test_classes_that_need_other_flags_are_to_be_split(
    effects: dict[str, float], said: str
) -> None:
    assert decide(mixed(effects)).choice.split_pools.startswith(said)
