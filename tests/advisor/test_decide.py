"""The verdicts an expert would give, on deployments whose truth is known."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest

from advisor.decide import decide
from advisor.deployment import Deployment, Model
from advisor.evidence import (
    AaControl,
    AccuracyBucket,
    Arm,
    ClientHealth,
    Evidence,
    Observation,
    WorkloadClass,
)
from advisor.policy import Policy, ServiceLimits
from advisor.steps import Again, MorePairs, Questions, Swap
from advisor.verdict import ArmVerdict, Decision
from tests.advisor.cases import BF16, BUCKETS, FP8, H100, SPREAD, bare, compared, observed, sweeps
from tests.advisor.worlds import Noise, answers, simulated_calls

QUIET = Noise(call=0.05, wander=0.02, phi=0.3, block=0.005)


def _verdict(decision: Decision, arm: str = "fp8", workload: str | None = None) -> ArmVerdict:
    each = decision.server if workload is None else decision.classes
    return next(verdict for verdict in each if verdict.arm == arm and verdict.workload == workload)


def _mixed(
    effects: dict[str, float],
    *,
    arm: str = "fp8",
    seed: int = 1,
    pairs: int = 16,
    idle: bool = True,
) -> Evidence:
    """Return evidence with one workload an effect, equal shares and good answers."""
    rng = np.random.default_rng(seed)
    observations: list[Observation] = []
    for name, effect in effects.items():
        calls = simulated_calls(
            rng, pairs=pairs, effect=effect, noise=QUIET, swapped=False, restarts=pairs
        )
        observations.extend(observed(*calls, workload=name, name=arm, idle=idle))
    return compared(
        effect=0.0,
        observations=tuple(observations),
        workloads=tuple(
            WorkloadClass(name=name, gpu_time_share=1 / len(effects), context_tokens=SPREAD)
            for name in effects
        ),
    )


def test_long_chat_and_reasoning_use_fp8_and_short_chat_sees_no_difference() -> None:
    decision = decide(_mixed({"reasoning": -0.12, "long chat": -0.09, "short chat": 0.005}))
    assert {verdict.workload: verdict.verdict for verdict in decision.classes} == {
        "reasoning": "use",
        "long chat": "use",
        "short chat": "no difference",
    }
    assert _verdict(decision).verdict == "use"
    assert decision.choice.arm == "fp8"
    assert decision.choice.split_pools.startswith("One flag")


def test_skipping_window_layers_beats_full_fp8_on_latency_and_its_pool_cost_is_stated() -> None:
    rng = np.random.default_rng(2)
    reference, full = simulated_calls(rng, pairs=24, effect=-0.04, noise=QUIET, swapped=False)
    skip = replace(
        full, turn_ms=full.turn_ms * 0.92, tpot_ms=full.tpot_ms * 0.92, ttft_ms=full.ttft_ms * 0.92
    )
    fp8, skipping = (
        replace(FP8, pool_tokens=1_600_000.0),
        replace(FP8, name="fp8-skip-sw", skip_layers=("sliding_window",), pool_tokens=1_000_000.0),
    )
    bf16 = replace(BF16, pool_tokens=800_000.0, expected_pool_tokens=None)
    base = compared(effect=0.0)
    evidence = replace(
        base,
        model=Model(name="gpt-oss-20b", full_layers=12, window_layers=12, head_dim=64),
        arms=(
            bf16,
            replace(fp8, expected_pool_tokens=None),
            replace(skipping, expected_pool_tokens=None),
        ),
        observations=(
            *observed(reference, full),
            Observation(workload="chat", arm="fp8-skip-sw", calls=skip),
        ),
        accuracy=tuple(
            replace(bucket, arm=arm) for bucket in base.accuracy for arm in ("fp8", "fp8-skip-sw")
        ),
    )
    decision = decide(evidence)
    assert decision.choice.arm == "fp8-skip-sw"
    assert decision.choice.runner_up == "fp8"
    told = next(finding.message for finding in decision.findings if finding.rule == "window_layers")
    assert "1.25x the tokens of bf16, fp8 2.00x" in told


def test_what_flips_the_decision_is_said_of_the_arm_that_is_chosen() -> None:
    rng = np.random.default_rng(2)
    reference, full = simulated_calls(rng, pairs=24, effect=-0.08, noise=QUIET, swapped=False)
    better = replace(
        full, turn_ms=full.turn_ms * 0.93, tpot_ms=full.tpot_ms * 0.93, ttft_ms=full.ttft_ms * 0.93
    )
    base = compared(effect=0.0)
    decision = decide(
        replace(
            base,
            arms=(BF16, FP8, replace(FP8, name="skip")),
            observations=(
                *observed(reference, full),
                Observation(workload="chat", arm="skip", calls=better),
            ),
            accuracy=tuple(
                replace(bucket, arm=arm) for bucket in base.accuracy for arm in ("fp8", "skip")
            ),
        )
    )
    assert (decision.choice.arm, decision.choice.runner_up) == ("skip", "fp8")
    assert _verdict(decision, "skip").flips[0] in decision.flips
    assert _verdict(decision, "fp8").flips[0] not in decision.flips


def test_a_difference_that_lies_at_the_margin_itself_asks_for_as_many_pairs_again_not_for_fewer_than_there_were() -> (
    None
):
    verdict = _verdict(decide(compared(effect=-0.032, pairs=24, noise=QUIET, seed=3)))
    assert verdict.pays.state == "unclear"
    assert (verdict.needs[0].pairs, verdict.needs[0].step) == (24, MorePairs(pairs=48))


def test_prefill_heavy_rag_avoids_and_decode_heavy_work_uses() -> None:
    decision = decide(_mixed({"rag": 0.25, "agents": -0.12}))
    assert (
        _verdict(decision, workload="rag").verdict,
        _verdict(decision, workload="agents").verdict,
    ) == ("avoid", "use")
    assert decision.choice.split_pools.startswith("Split")


def test_a_kernel_that_loses_the_needle_is_avoided_whatever_it_gains() -> None:
    decision = decide(compared(effect=-0.2, items=40, change=-0.78, discordance=0.8))
    assert _verdict(decision).verdict == "avoid"
    assert _verdict(decision).safe.state == "no"
    assert decision.choice.arm == "bf16"


def test_six_of_six_buckets_down_asks_for_calibration_where_the_loss_may_reach_the_margin_even_without_timings() -> (
    None
):
    published = (-0.4, -3.0, -2.0, -1.6, -1.3, -3.3)  # Kimi-K2.5 on H200, points of 100 by bucket
    rng = np.random.default_rng(3)
    buckets = []
    for length, points in zip((8192, 16384, 32768, 65536, 131072, 262144), published, strict=True):
        base = rng.uniform(0.3, 0.9, 100)
        drawn = rng.normal(0, 0.2, 100)
        shifted = base + drawn - drawn.mean() + points / 100
        buckets.append(
            AccuracyBucket(
                arm="fp8",
                task="mrcr",
                context_tokens=float(length),
                both=0,
                reference_only=0,
                arm_only=0,
                neither=0,
                reference_scores=base,
                arm_scores=shifted,
            )
        )
    assert (
        _verdict(decide(bare(accuracy=tuple(buckets)), Policy(accuracy_margin=0.06))).verdict
        == "test further"
    )
    decision = decide(bare(accuracy=tuple(buckets)))
    assert _verdict(decision).verdict == "calibrate"
    assert "6 of 6 buckets fell, none rose (sign test p 0.016" in _verdict(decision).reason
    assert decision.choice.headline == "stay on bf16; calibrate fp8, then test it again"


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


def test_untested_answers_cap_a_gain() -> None:
    verdict = _verdict(decide(compared(effect=-0.15, items=0)))
    assert (verdict.verdict, verdict.pays.state, verdict.safe.state) == (
        "test further",
        "yes",
        "untested",
    )


def test_a_slower_machine_is_not_blamed_on_its_arm() -> None:
    other = replace(BF16, name="bf16-b", machine="b")
    rng = np.random.default_rng(4)
    calls = simulated_calls(rng, pairs=24, effect=0.03, noise=QUIET, swapped=False)
    evidence = compared(
        effect=0.0,
        arms=(replace(BF16, machine="a"), other),
        deployment=Deployment(version="0.33.0", gpu=H100, machines=("a", "b")),
        observations=observed(*calls, name="bf16-b"),
        accuracy=(),
    )
    verdict = _verdict(decide(evidence), "bf16-b")
    assert verdict.verdict == "test further"
    assert verdict.pays.reason.endswith(
        "each arm stayed on one machine: let them change machines half way (--swap)"
    )
    assert verdict.needs[0].step == Swap(pairs=24)


def test_two_equal_servers_on_one_machine_make_no_difference() -> None:
    rng = np.random.default_rng(5)
    calls = simulated_calls(rng, pairs=24, effect=0.0, noise=QUIET, swapped=False)
    evidence = compared(
        effect=0.0,
        arms=(BF16, replace(BF16, name="bf16-b")),
        observations=observed(*calls, name="bf16-b"),
        accuracy=(),
    )
    verdict = _verdict(decide(evidence), "bf16-b")
    assert (verdict.verdict, verdict.safe.state) == ("no difference", "yes")


def _garbage_above(length: float, *, asked_to: float) -> Evidence:
    rng = np.random.default_rng(6)
    buckets = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=context,
            items=150,
            right=0.9,
            change=-0.85 if context > length else 0.0,
            discordance=0.86 if context > length else 0.03,
        )
        for context in BUCKETS
        if context <= asked_to
    )
    contexts = np.concatenate([np.linspace(4000, 90_000, 95), np.full(5, 125_000.0)])
    workload = WorkloadClass(name="chat", gpu_time_share=1.0, context_tokens=contexts)
    return compared(effect=-0.15, accuracy=buckets, workloads=(workload,))


def test_garbage_above_100k_is_caught_where_it_was_asked_for() -> None:
    verdict = _verdict(decide(_garbage_above(100_000, asked_to=131_072)))
    assert verdict.verdict == "avoid"
    assert verdict.reason.startswith(
        "fp8 is broken above 96k: 9 of 150 right at 128k where bf16 has 141 of 150."
    )


def test_garbage_above_100k_is_an_untested_share_where_it_was_not_asked_for() -> None:
    decision = decide(_garbage_above(100_000, asked_to=98_304))
    verdict = _verdict(decision)
    # One call in twenty, but more than a tenth of the tokens.
    assert (verdict.verdict, verdict.holds_to, verdict.untested_share) == ("use", 98_304.0, 0.05)
    assert decision.choice.headline == "use fp8 for contexts up to 96k; test it further beyond"
    assert any(
        "5.0% of the calls of the mix are longer than 96k" in finding.message
        for finding in decision.findings
    )


def test_too_large_an_untested_share_bounds_the_verdict() -> None:
    decision = decide(_garbage_above(100_000, asked_to=32_768))
    verdict = _verdict(decision)
    assert (verdict.verdict, verdict.holds_to, decision.choice.holds_to) == (
        "use",
        32_768.0,
        32_768.0,
    )
    assert (
        "This holds for contexts up to 32k: 64% of your calls are longer, up to 122k, and "
        "need further testing."
    ) in verdict.reason
    assert any(isinstance(each.step, Questions) for each in verdict.needs)


def test_equal_copies_that_differ_by_as_much_as_the_arms_leave_it_open() -> None:
    rng = np.random.default_rng(7)
    control = AaControl(
        workload="chat",
        first=(pair := simulated_calls(rng, pairs=12, effect=0.1, noise=QUIET))[0],
        second=pair[1],
    )
    evidence = compared(effect=-0.1, pairs=24, noise=QUIET, restarts=1)
    doubted = _verdict(decide(replace(evidence, aa=(control,))))
    assert (doubted.pays.state, doubted.verdict) == ("unclear", "test further")
    assert _verdict(decide(evidence)).verdict == "use"


@pytest.mark.parametrize("effect", [0.15, 3.0])
def test_equal_copies_far_apart_leave_open_what_is_no_larger(effect: float) -> None:
    rng = np.random.default_rng(8)
    control = AaControl(
        workload="chat",
        first=(pair := simulated_calls(rng, pairs=6, effect=effect, noise=QUIET))[0],
        second=pair[1],
    )
    verdict = _verdict(decide(compared(effect=-0.1, aa=(control,), restarts=1)))
    assert verdict.verdict == "test further"
    assert any(
        "two identical servers may differ by up to" in each.message
        for each in decide(compared(effect=-0.1, aa=(control,))).findings
    )


def test_a_failed_gate_makes_its_evidence_unusable_and_says_why() -> None:
    late = (ClientHealth(send_lag_p99_ms=40.0),)
    decision = decide(compared(effect=-0.2, health=late))
    assert _verdict(decision).verdict == "test further"
    assert _verdict(decision).pays.reason.startswith(
        "turn latency cannot be judged, because a validity check failed (client: the load "
        "generator sent requests 40.0 ms late"
    )
    assert any("sent requests 40.0 ms late" in caveat for caveat in decision.caveats)
    assert [(need.what, need.step) for need in _verdict(decision).needs] == [
        ("a rerun in which the check 'client' passes", Again())
    ]


def test_a_service_level_that_only_the_arm_breaks_is_a_veto() -> None:
    evidence = compared(effect=-0.1, pairs=24)
    slow = tuple(
        replace(each, calls=replace(each.calls, ttft_ms=each.calls.ttft_ms * 3))
        if each.arm == "fp8" and each.calls is not None
        else each
        for each in evidence.observations
    )
    decision = decide(
        replace(evidence, observations=slow), Policy(slos=(ServiceLimits(ttft_ms=3500.0),))
    )
    assert _verdict(decision).verdict == "avoid"
    assert "the limit is 3500 ms" in _verdict(decision).reason


def test_a_decision_is_plain_data_without_a_nan() -> None:
    decision = decide(
        replace(compared(effect=-0.1), sweeps=sweeps()),
        Policy(slos=(ServiceLimits(turn_ms=60_000.0),)),
    )
    text = json.dumps(dataclasses.asdict(decision), allow_nan=False)
    assert json.loads(text)["choice"]["arm"] == "fp8"


def test_equal_evidence_gives_an_equal_decision() -> None:
    assert decide(compared(effect=-0.05)) == decide(compared(effect=-0.05))


def test_one_arm_alone_is_not_compared() -> None:
    decision = decide(bare(arms=(BF16,)))
    assert decision.choice.headline == "stay on bf16: nothing was compared with it"
    assert decision.server == ()


def test_the_four_lists_are_read_off_the_classes() -> None:
    decision = decide(_mixed({"rag": 0.25, "agents": -0.12}))
    assert [verdict.workload for verdict in decision.listed("use")] == ["agents"]
    assert [verdict.workload for verdict in decision.listed("avoid")] == ["rag"]


@pytest.mark.parametrize("arm", [replace(FP8, observed_dtype="bfloat16")])
def test_an_arm_that_is_not_what_it_says_is_not_judged(arm: Arm) -> None:
    verdict = _verdict(decide(compared(effect=-0.2, arms=(BF16, arm))))
    assert verdict.verdict == "test further"
    assert verdict.pays.reason == (
        "turn latency cannot be judged, because a validity check failed (identity: KV "
        "dtype bfloat16 where fp8 was asked for)"
    )


def test_one_arm_alone_compares_nothing_and_two_do() -> None:
    alone = decide(bare(arms=(BF16,)))
    assert "There is one arm only: nothing is compared." in alone.caveats
    assert alone.choice.headline == "stay on bf16: nothing was compared with it"
    assert not any("one arm only" in each for each in decide(bare()).caveats)


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
