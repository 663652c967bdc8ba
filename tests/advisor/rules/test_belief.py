"""Rules about how far a measurement can be believed, and what it lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.deployment import Deployment
from advisor.evidence import AaControl, AccuracyBucket, Prior
from advisor.policy import Policy, ServiceLimits
from advisor.rules import (
    carry_over,
    machine_or_arm,
    missing_evidence,
    noise_floor,
    other_gpu,
    same_question_twice,
    slo_broken,
    tail,
)
from advisor.statistics.quantiles import quantile
from advisor.steps import Control, MorePairs
from tests.advisor.cases import BF16, FP8, H100, bare, compared, observed
from tests.advisor.rules.asking import QUIET, case, findings
from tests.advisor.worlds import Noise, simulated_calls


def test_priors_of_another_gpu_are_shown_and_decide_nothing() -> None:
    prior = Prior(
        what="break_even_tokens",
        arm="fp8",
        value=7010.0,
        unit="tokens",
        gpu="H100-SXM",
        source="vLLM blog 2026-04-22",
    )
    (found,) = findings(other_gpu, bare(priors=(prior, replace(prior, gpu="B200-SXM"))))
    assert found.message.startswith(
        "1 published figures shown next to yours come from B200-SXM, not from H100-SXM"
    )
    assert (found.kind, found.prior) == ("informs", True)
    assert findings(other_gpu, bare(priors=(prior,))) == []


def test_machines_that_never_changed_places_are_named() -> None:
    two = Deployment(gpu=H100, machines=("a", "b"))
    arms = (replace(BF16, machine="a"), replace(FP8, machine="b"))
    (found,) = findings(machine_or_arm, compared(effect=0.0, deployment=two, arms=arms))
    assert "what a machine adds counts as part of a start, and was not measured" in found.message
    assert (
        findings(
            machine_or_arm, compared(effect=0.0, deployment=replace(two, swapped=True), arms=arms)
        )
        == []
    )


def test_without_a_control_nothing_shows_that_equal_servers_are_equal() -> None:
    (found,) = findings(noise_floor, compared(effect=0.0))
    assert (found.kind, found.next_step) == ("informs", Control(arm="bf16"))


def test_a_wide_control_asks_for_pairs_of_this_run_and_not_for_another_small_one() -> None:
    rng = np.random.default_rng(1)
    first, second = simulated_calls(
        rng, pairs=3, effect=0.0, noise=Noise(call=0.1, wander=0.05, block=0.05), swapped=False
    )
    (found,) = findings(
        noise_floor,
        compared(effect=0.0, pairs=3, aa=(AaControl(workload="chat", first=first, second=second),)),
    )
    assert "(A/A control, 3 pairs). This control is too small to resolve 0.5%" in found.message
    assert isinstance(found.next_step, MorePairs)


def test_a_control_that_no_number_of_pairs_narrows_asks_what_disturbs_it_and_not_for_thousands_of_pairs() -> (
    None
):
    first, second = simulated_calls(
        np.random.default_rng(1),
        pairs=3,
        effect=0.0,
        noise=Noise(call=0.1, block=0.8),
        swapped=False,
    )
    (found,) = findings(
        noise_floor,
        compared(effect=0.0, pairs=3, aa=(AaControl(workload="chat", first=first, second=second),)),
    )
    assert "over 1,000 pairs: find out what disturbs them first" in found.message
    assert found.next_step is None


@pytest.mark.parametrize(("second", "said"), [(0.04, 1), (-0.04, 1), (0.004, 0), (0.0, 0)])
def test_a_large_effect_of_the_place_in_a_pair_is_said_and_doubts_the_claim(
    second: float, said: int
) -> None:
    reference, arm = simulated_calls(
        np.random.default_rng(3), pairs=12, effect=-0.15, noise=QUIET, swapped=False, restarts=12
    )
    is_second = arm.block > reference.block
    left = replace(arm, turn_ms=arm.turn_ms * np.exp(second * is_second))
    found = findings(carry_over, compared(effect=0.0, observations=observed(reference, left)))
    assert len(found) == said
    for each in found:
        assert (
            "Carry-over: where fp8 plays second in a pair, its turns of chat take" in each.message
        )
        assert (each.kind, each.leg) == ("opposes", "validity")


def test_what_a_server_changes_by_itself_stands_beside_what_an_arm_changes() -> None:
    asked = AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=8192.0,
        both=180,
        reference_only=6,
        arm_only=4,
        neither=10,
    )
    again = replace(asked, arm="bf16", reference_only=5, arm_only=5)
    (found,) = findings(same_question_twice, bare(accuracy=(asked,), aa_accuracy=(again,)))
    assert (found.kind, found.arm, found.leg, found.next_step) == ("informs", "bf16", "safe", None)
    assert (
        found.message == "Asked the same questions twice, bf16 changed 5.0% of 200 answers "
        "(0.0 pp [-3.6, +3.6]); fp8 changed 5.0%."
    )
    known = case(bare(accuracy=(asked,), aa_accuracy=(again,)))
    of_a_class = tuple(
        each if each.workload is None else replace(each, discordance=0.2) for each in known.accuracy
    )
    assert list(same_question_twice.check(replace(known, accuracy=of_a_class))) == [
        replace(found, rule="")
    ]


def test_a_limit_that_only_the_arm_breaks_blocks_it() -> None:
    policy = Policy(slos=(ServiceLimits(workload="chat", ttft_ms=3500.0),))
    (found,) = findings(slo_broken, compared(effect=0.8, pairs=24), policy)
    assert (found.asks_for, found.kind) == ("avoid", "blocks")
    assert findings(slo_broken, compared(effect=-0.1, pairs=24), policy) == []
    (both,) = findings(
        slo_broken,
        compared(effect=0.8, pairs=24),
        Policy(slos=(ServiceLimits(workload="chat", ttft_ms=500.0),)),
    )
    assert (both.asks_for, both.kind) == (None, "informs")


def test_tails_on_either_side_of_a_limit_are_no_veto_where_the_same_turns_did_not_get_longer() -> (
    None
):
    evidence = compared(effect=0.0, pairs=24)
    reference, arm = (evidence.calls("chat", name) for name in ("bf16", "fp8"))
    assert reference is not None
    assert arm is not None
    # As good pair by pair, but its slowest turns lie in the tail and its quickest elsewhere.
    spread = np.where(reference.ttft_ms > np.quantile(reference.ttft_ms, 0.9), 1.5, 0.93)
    stretched = replace(arm, ttft_ms=reference.ttft_ms * spread)
    limit = float(np.quantile(reference.ttft_ms, 0.97))
    policy = Policy(slos=(ServiceLimits(workload="chat", ttft_ms=limit),))
    (found,) = findings(
        slo_broken, replace(evidence, observations=observed(reference, stretched)), policy
    )
    assert (found.asks_for, found.kind) == (None, "opposes")


def test_turns_that_died_are_slower_than_any_that_ended() -> None:
    evidence = compared(effect=0.02, pairs=24, noise=QUIET)
    reference, arm = (evidence.calls("chat", name) for name in ("bf16", "fp8"))
    assert reference is not None
    assert arm is not None
    limit = float(np.quantile(arm.ttft_ms, 0.962))
    slow = arm.ttft_ms > np.quantile(arm.ttft_ms, 0.9)
    # One in ten is late, and four of those ten died: of those that ended too few are late to tell.
    late = replace(
        arm,
        ttft_ms=np.where(slow, 2 * limit, arm.ttft_ms),
        ok=~(slow & (np.arange(len(arm)) % 5 > 2)),
    )
    policy = Policy(
        slos=(ServiceLimits(workload="chat", ttft_ms=limit),),
        max_dropped_difference=0.1,
        max_dropped_share=0.1,
    )
    (found,) = findings(
        slo_broken, replace(evidence, observations=observed(reference, late)), policy
    )
    assert found.asks_for == "avoid"


def test_missing_evidence_is_priced() -> None:
    told = [each.message for each in findings(missing_evidence, bare())]
    assert told[0] == "Fewer than 3 block pairs of chat were played on fp8."
    assert told[1].startswith(
        "Accuracy is untested on fp8: about 1,200 paired questions at the lengths of each "
        "class, 102 min and 10.16 USD, settle"
    )
    (open_question,) = findings(missing_evidence, compared(effect=-0.03, pairs=5))
    need = open_question.need
    assert need is not None
    assert need.pairs is not None
    assert need.minutes is not None
    assert open_question.message.startswith("Turn latency of chat on fp8, ")
    assert need.usd is not None
    cost = (
        f"{need.pairs} more pairs, {need.calls:,} calls, {need.minutes:.0f} min and "
        f"{need.usd:.2f} USD."
    )
    assert open_question.message.endswith(f" is undecided at a margin of 3%: {cost}")
    assert (open_question.kind, need.step) == ("opposes", MorePairs(pairs=need.pairs + 5))
    assert findings(missing_evidence, compared(effect=-0.2)) == []


def test_a_limit_that_the_slowest_turns_just_hold_is_held() -> None:
    evidence = compared(effect=0.5, pairs=24)
    calls = evidence.calls("chat", "fp8")
    assert calls is not None
    at = quantile(calls.ttft_ms, calls.session, 0.95, unit="ms")
    assert at is not None
    assert findings(slo_broken, evidence, Policy(slos=(ServiceLimits(ttft_ms=at.value),))) == []
    assert (
        len(
            findings(slo_broken, evidence, Policy(slos=(ServiceLimits(ttft_ms=at.value * 0.9999),)))
        )
        == 1
    )


def test_a_longer_tail_is_told_at_the_level_that_its_tests_share() -> None:
    evidence = compared(effect=0.0, pairs=48, noise=QUIET)
    reference, arm = (evidence.calls("chat", name) for name in ("bf16", "fp8"))
    assert reference is not None
    assert arm is not None
    hit = np.where(np.random.default_rng(5).random(len(arm)) < 0.06, 2.5, 1.0)
    known = case(
        replace(evidence, observations=observed(reference, replace(arm, turn_ms=arm.turn_ms * hit)))
    )
    found = tail._tails(known, "fp8", "chat", "turn_ms")
    assert found is not None
    longer = next(each for each in found[0] if each.p_longer(1.1) <= 0.001)
    # Two quantiles of two metrics share what one test would have alone.
    shared, spent = (
        f"(at least {100 * (longer.least(0.025 / parts) - 1):.0f}%, by " for parts in (4, 1)
    )
    (said,) = (each.message for each in tail.check(known) if each.kind == "opposes")
    assert shared != spent
    assert shared in said
