"""Decisions that real use has shown to be wrong or misleading, each
with the right answer; test_real_use.py says which answers which.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
import pytest

from advisor.decide import assess, decide
from advisor.deployment import Deployment
from advisor.evidence import Calls, Evidence, Observation, Scales
from advisor.legs import questions
from advisor.legs.safe import safe_leg
from advisor.legs.speed import speed_leg
from advisor.policy import Policy, ServiceLimits
from advisor.steps import Calibrate, CapacitySearch, Questions
from advisor.verdict import ArmVerdict, Decision
from tests.advisor.cases import BF16, BUCKETS, FP8, H100, bare, compared, search
from tests.advisor.worlds import Noise, answers

QUIET = Noise(call=0.05, wander=0.02, phi=0.3, block=0.005)


def server(decision: Decision, arm: str = "fp8") -> ArmVerdict:
    return next(each for each in decision.server if each.arm == arm)


def searched(evidence: Evidence, **agents: int) -> Evidence:
    """Add a capacity search in which each arm carries so many agents."""
    return replace(
        evidence,
        capacity=tuple(point for arm, most in agents.items() for point in search(arm, most)),
    )


@pytest.mark.parametrize("effect", [-0.045, -0.06])
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("capacity", [False, True])
@pytest.mark.parametrize("seed", range(3))
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
    verdict = server(decision)
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
    assert server(decide(evidence)).verdict == "use"


def test_every_number_of_items_has_its_minutes_and_its_cost() -> None:
    need = questions.first(assess(bare(), Policy()), "fp8", "chat")
    # 1,198 items of 8k to 128k at 10,000 tokens a second, on two GPUs at 3 USD an hour.
    assert need.minutes is not None
    assert need.minutes == pytest.approx(
        (need.pairs or 0) * sum((8, 16, 32, 64, 128)) * 1024 / 5 / 10_000 / 60
    )
    assert need.usd == pytest.approx(2 * 3.0 * need.minutes / 60)


def scaled(
    evidence: Evidence,
    factor: np.ndarray[tuple[int], np.dtype[np.float64]] | float,
    *metrics: str,
    arm: str = "fp8",
) -> Evidence:
    """Multiply what turns of an arm took."""

    def slower(each: Observation) -> Observation:
        calls = each.calls
        if each.arm != arm or calls is None:
            return each
        return replace(
            each,
            calls=replace(
                calls,
                **{metric: getattr(calls, metric) * factor for metric in metrics or ("turn_ms",)},
            ),
        )

    return replace(evidence, observations=tuple(slower(each) for each in evidence.observations))


def lengths(evidence: Evidence) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    calls = evidence.calls("chat", "fp8")
    assert calls is not None
    return calls.prompt_tokens


def of_two_kinds(short: float, long: float, *, pairs: int = 24) -> Evidence:
    """Change the shorter two thirds of the turns by one factor,
    the longer third by another, longer turns taking longer too.
    """
    evidence = compared(effect=0.0, pairs=pairs, noise=QUIET)
    tokens = lengths(evidence)
    is_long = tokens > np.quantile(tokens, 2 / 3)
    return scaled(evidence, np.where(is_long, long, short))


def test_a_gain_of_long_turns_is_no_difference_to_nobody() -> None:
    verdict = server(decide(of_two_kinds(1.08, 0.82, pairs=48)))
    assert verdict.verdict == "test further"
    assert "prompts up to" in verdict.pays.reason
    assert "prompts above" in verdict.pays.reason
    assert "+8." in verdict.pays.reason
    assert "-18." in verdict.pays.reason
    assert "counts" in verdict.pays.reason


@pytest.mark.parametrize(
    ("counts", "word"), [("turns", "no difference"), ("time", "use"), ("both", "test further")]
)
def test_the_policy_says_whether_turns_or_time_count(
    counts: Literal["both", "turns", "time"], word: str
) -> None:
    evidence = of_two_kinds(1.08, 0.82, pairs=48)
    assert server(decide(evidence, Policy(counts=counts))).verdict == word


def test_a_gain_of_short_turns_that_long_ones_pay_for_is_no_use() -> None:
    assert server(decide(of_two_kinds(0.86, 1.06))).verdict == "test further"


@pytest.mark.parametrize(
    ("effect", "word"), [(-0.1, "use"), (0.0, "no difference"), (0.1, "avoid")]
)
def test_turns_that_all_change_alike_are_decided_as_before(effect: float, word: str) -> None:
    assert server(decide(compared(effect=effect, pairs=24, noise=QUIET))).verdict == word


METRICS = ("turn_ms", "ttft_ms")


def with_tail(evidence: Evidence, share: float, times: float, *metrics: str) -> Evidence:
    """Make a few turns of the arm slower, among turns that read and write alike."""
    alike = (lengths(evidence) / 8000) ** (-1 / 0.3)
    for arm in ("bf16", "fp8"):
        evidence = scaled(evidence, alike, *METRICS, arm=arm)
    hit = np.random.default_rng(5).random(alike.size) < share
    return scaled(evidence, np.where(hit, times, 1.0), *(metrics or METRICS))


@pytest.mark.parametrize("effect", [0.0, -0.1])
@pytest.mark.parametrize("metric", METRICS)
def test_a_tail_that_is_surely_longer_opposes_use_and_no_difference_without_a_service_level(
    effect: float, metric: str
) -> None:
    evidence = compared(effect=effect, pairs=48, noise=QUIET)
    plain, slow = (
        decide(with_tail(evidence, 0.0, 1.0)),
        decide(with_tail(evidence, 0.03, 1.5, metric)),
    )
    assert server(plain).verdict in ("use", "no difference")
    assert server(slow).verdict == "test further"
    assert ("TTFT p99" if metric == "ttft_ms" else "turn latency p99") in server(slow).reason


def taken(calls: Calls, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Calls:
    columns: dict[str, Any] = {each.name: getattr(calls, each.name) for each in fields(Calls)}
    kept: dict[str, Any] = {
        name: None if column is None else column[rows] for name, column in columns.items()
    }
    return Calls(**kept)


def test_a_tail_of_too_few_turns_is_not_known_and_vetoes_nothing() -> None:
    evidence = with_tail(compared(effect=-0.1, pairs=6, noise=QUIET, seed=3), 0.0, 1.0)
    few = tuple(
        replace(each, calls=taken(each.calls, each.calls.turn == 0))
        for each in evidence.observations
        if each.calls is not None
    )
    decision = decide(replace(evidence, observations=few))
    assert any(
        each.rule == "tail" and "is not known: 3" in each.message for each in decision.findings
    )
    assert not any(each.rule == "tail" and each.asks_for is not None for each in decision.findings)


def test_a_tail_that_holds_the_users_own_service_level_is_no_doubt() -> None:
    evidence = with_tail(compared(effect=-0.1, pairs=48, noise=QUIET), 0.03, 1.5, "ttft_ms")
    assert (
        server(decide(evidence, Policy(slos=(ServiceLimits(ttft_ms=60_000.0),)))).verdict == "use"
    )
    assert (
        server(decide(evidence, Policy(slos=(ServiceLimits(turn_ms=60_000.0),)))).verdict
        == "test further"
    )


# --- what is wrong, and what would mend it

SHIFTED = {"items": 300, "change": -0.16, "discordance": 0.3}


def scaled_by(scales: Scales | None, **changes: object) -> Evidence:
    return compared(
        effect=-0.12,
        noise=QUIET,
        **SHIFTED,  # type: ignore[arg-type]
        arms=(BF16, replace(FP8, scales=scales)),
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("scales", "word"),
    [("default", "calibrate"), (None, "calibrate"), ("calibrated", "avoid"), ("dynamic", "avoid")],
)
def test_faster_but_less_accurate_with_scales_that_nobody_calibrated_is_to_be_calibrated(
    scales: Scales | None, word: str
) -> None:
    decision = decide(scaled_by(scales))
    verdict = server(decision)
    assert (verdict.verdict, verdict.safe.state, verdict.pays.state) == (word, "no", "yes")
    assert (Calibrate() in [each.step for each in verdict.needs]) == (word == "calibrate")


def test_less_accurate_and_no_faster_is_avoided_whatever_its_scales_are() -> None:
    evidence = compared(effect=0.0, noise=QUIET, pairs=24, items=300, change=-0.16, discordance=0.3)
    assert server(decide(evidence)).verdict == "avoid"


def old_kernel(**changes: object) -> Evidence:
    return compared(
        effect=-0.12,
        noise=QUIET,
        deployment=Deployment(version="0.10.2", gpu=H100, machines=("a",)),
        **changes,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("items", [0, 300])
def test_a_known_kernel_bug_says_which_version_to_upgrade_to_before_and_after_answers_were_asked(
    items: int,
) -> None:
    decision = decide(old_kernel(items=items, change=-0.16, discordance=0.3))
    verdict = server(decision)
    assert verdict.verdict == "avoid"
    assert verdict.safe.state == "no"
    assert "upgrade vLLM to 0.19.1" in decision.choice.headline
    assert "upgrade vLLM to 0.19.1" in verdict.reason.lower().replace("vllm", "vLLM")


def wrong_above(
    length: float, *, scales: Scales | None = "calibrated", change: float = -0.5
) -> Evidence:
    rng = np.random.default_rng(6)
    buckets = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=context,
            items=200,
            right=0.9,
            change=change if context > length else 0.0,
            discordance=0.55 if context > length else 0.03,
        )
        for context in BUCKETS
    )
    return compared(
        effect=-0.15, noise=QUIET, accuracy=buckets, arms=(BF16, replace(FP8, scales=scales))
    )


def test_wrong_only_above_a_length_says_where_to_cap_the_context() -> None:
    decision = decide(wrong_above(70_000))
    verdict = server(decision)
    assert verdict.verdict == "avoid"
    assert (
        "Cap the context at 64k (--max-model-len 65536), or route longer calls to bf16"
        in verdict.reason
    )
    assert "cap the context at 64k" in decision.choice.headline


def test_wrong_at_every_length_says_nothing_of_a_cap() -> None:
    assert (
        "context at"
        not in server(
            decide(compared(effect=-0.15, noise=QUIET, items=200, change=-0.5, discordance=0.55))
        ).reason.lower()
    )


def test_agents_that_are_known_without_a_peak_ask_for_it_by_name() -> None:
    evidence = searched(compared(effect=-0.1), bf16=16, fp8=40)
    unknown = replace(evidence, deployment=replace(evidence.deployment, peak_agents=None))
    assert any("load.peak_agents" in each for each in decide(unknown).caveats)
    assert not any("load.peak_agents" in each for each in decide(evidence).caveats)


def test_a_class_that_was_not_searched_alone_agrees_with_the_search_of_the_mix() -> None:
    decision = decide(searched(compared(effect=0.0, pairs=24, noise=QUIET), bf16=16, fp8=40))
    assert server(decision).pays.state == "yes"
    assert {each.pays.state for each in decision.classes} == {"yes"}


def asked(
    evidence: Evidence, *, peak: int | None, working_set: float, pool: float = 420_000.0
) -> Evidence:
    """Return evidence of a load whose sessions hold so many tokens at once."""
    workload = replace(evidence.workloads[0], working_set_tokens=working_set)
    deployment = replace(evidence.deployment, peak_agents=peak)
    return replace(
        evidence,
        workloads=(workload,),
        deployment=deployment,
        arms=(replace(BF16, pool_tokens=pool), FP8),
    )


def test_a_larger_pool_is_no_difference_only_where_the_load_that_was_asked_for_leaves_it_empty() -> (
    None
):
    equal = compared(effect=0.0, pairs=24, noise=QUIET)
    idle, full = (
        server(decide(asked(equal, peak=8, working_set=tokens)))
        for tokens in (100_000.0, 400_000.0)
    )
    assert (idle.verdict, full.verdict) == ("no difference", "test further")
    assert any(isinstance(each.step, CapacitySearch) for each in full.needs)
    found = server(decide(searched(asked(equal, peak=8, working_set=400_000.0), bf16=9, fp8=20)))
    assert (found.verdict, found.pays.state) == ("use", "yes")
    assert "agents per GPU for" in found.pays.reason


@pytest.mark.parametrize(
    ("longest", "word", "holds_to"), [(128 * 1024, "avoid", None), (32 * 1024, "use", 32 * 1024)]
)
def test_an_arm_that_breaks_above_64k_is_avoided_with_the_cap_or_not_judged_where_that_was_not_asked(
    longest: int, word: str, holds_to: float | None
) -> None:
    evidence = wrong_above(70_000)
    tokens = np.concatenate([np.full(23, 20_000.0), np.full(77, 120_000.0)])
    evidence = replace(
        evidence,
        workloads=(replace(evidence.workloads[0], context_tokens=tokens),),
        accuracy=tuple(each for each in evidence.accuracy if each.context_tokens <= longest),
    )
    verdict = server(decide(evidence))
    assert (verdict.verdict, verdict.holds_to) == (word, holds_to)
    if word == "avoid":
        assert verdict.remedy is not None
        assert "cap the context at 64k" in verdict.remedy
    else:
        assert "for contexts up to 32k: 77% of your calls are longer" in verdict.reason
        assert any(
            isinstance(each.step, Questions) and max(each.step.lengths) == 118 * 1024
            for each in verdict.needs
        )


@pytest.mark.parametrize(
    ("machines", "swapped", "canary"),
    [(("a",), False, False), (("a", "b"), False, True), (("a", "b"), True, False)],
)
def test_arms_on_two_machines_that_never_changed_places_are_behind_a_canary_at_most(
    machines: tuple[str, ...],
    swapped: bool,  # noqa: FBT001  # a case
    canary: bool,  # noqa: FBT001  # a case
) -> None:
    evidence = compared(effect=-0.2, pairs=24, noise=QUIET, items=400)
    deployment = replace(evidence.deployment, machines=machines, swapped=swapped)
    arms = tuple(
        replace(arm, machine=None if swapped else machine)
        for arm, machine in zip((BF16, FP8), (machines * 2)[:2], strict=True)
    )
    on = {"bf16": 0, "fp8": len(machines) - 1}

    def placed(each: Observation) -> Observation:
        calls = each.calls
        assert calls is not None
        half = (calls.pair >= 12) & swapped
        return replace(
            each,
            calls=replace(
                calls, machine=np.where(half, len(machines) - 1 - on[each.arm], on[each.arm])
            ),
        )

    decision = decide(
        replace(
            evidence,
            deployment=deployment,
            arms=arms,
            observations=tuple(map(placed, evidence.observations)),
        )
    )
    assert (decision.choice.verdict, decision.choice.canary) == ("use", canary)
    assert any("Each arm had one machine" in each for each in decision.caveats) == canary


def p95(evidence: Evidence, arm: str) -> float:
    return next(
        each.estimate.value
        for each in decide(evidence).figures
        if (each.name, each.arm) == ("ttft_ms.p95", arm)
    )


@pytest.mark.parametrize(
    ("limit", "word", "pays"),
    [(1.2, "avoid", "no"), (1.48, "test further", "yes"), (2.0, "use", "yes")],
)
def test_a_service_level_that_is_missed_is_in_the_reason_and_in_the_criterion(
    limit: float, word: str, pays: str
) -> None:
    evidence = scaled(compared(effect=-0.12, pairs=48, noise=QUIET), 1.5 / 0.88, "ttft_ms")
    policy = Policy(
        slos=(ServiceLimits(ttft_ms=limit * p95(evidence, "bf16"), share=0.95),), counts="turns"
    )
    decision = decide(evidence, policy)
    verdict = server(decision)
    assert ("the limit is" in verdict.reason) == (limit < 2)
    assert ("not surely broken" in verdict.reason) == (limit == 1.48)
    assert (verdict.verdict, verdict.pays.state) == (word, pays)


def test_first_tokens_that_come_much_later_count_without_a_service_level() -> None:
    slower = scaled(compared(effect=-0.12, pairs=48, noise=QUIET), 1.57 / 0.88, "ttft_ms")
    verdict = server(decide(slower))
    assert verdict.verdict == "test further"
    assert "TTFT p" in verdict.reason


def test_harm_on_any_criterion_is_a_reason_to_stay_away() -> None:
    slower = searched(compared(effect=0.12, pairs=24, noise=QUIET), bf16=16, fp8=40)
    fewer = searched(compared(effect=-0.12, pairs=24, noise=QUIET), bf16=40, fp8=16)
    assert [server(decide(each)).verdict for each in (slower, fewer)] == ["avoid", "avoid"]


def test_the_arm_in_use_is_the_one_to_stay_on_whatever_it_is_called() -> None:
    evidence = compared(effect=-0.12, pairs=24, noise=QUIET)
    swapped = replace(
        evidence,
        reference="fp8",
        accuracy=tuple(replace(each, arm="bf16") for each in evidence.accuracy),
    )
    decision = decide(swapped)
    assert decision.choice.headline == "stay on fp8: avoid bf16"
    assert server(decision, "bf16").verdict == "avoid"
