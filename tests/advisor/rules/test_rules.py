from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from advisor import plugins, rulebook, rules
from advisor.assess.whole import assess
from advisor.case import Case
from advisor.evidence import (
    AccuracyBucket,
    Deployment,
    Evidence,
    Gpu,
    Model,
    Observation,
    PrefixBreak,
    Prior,
    Probe,
    Telemetry,
    WorkloadClass,
)
from advisor.issue_table import Issue, table, version
from advisor.policy import Policy, Slo
from advisor.rules import (
    accuracy_drop,
    below_break_even,
    capacity_bound,
    draft_acceptance,
    gain_lost_under_load,
    garbage_answers,
    head_dim_256,
    idle_bandwidth,
    kernel_changed,
    known_issues,
    machine_or_arm,
    missing_evidence,
    multimodal_tokens,
    noise_floor,
    not_a_line,
    one_of_two,
    other_gpu,
    pool_never_filled,
    prefix_break,
    same_question_twice,
    slo_broken,
    systematic_shift,
    ttft_bound,
    untested_lengths,
    unvalidated_backend,
    window_layers,
    worst_length,
)
from advisor.verdict import Finding
from tests.advisor.cases import BF16, FP8, H100, LLAMA, bare, compared, observed, sweeps
from tests.advisor.worlds import Noise, answers, simulated_calls

QUIET = Noise(call=0.04, wander=0.01, phi=0.2, block=0.003)


def _case(evidence: Evidence, policy: Policy | None = None) -> Case:
    return assess(evidence, policy or Policy())


def _findings(rule: ModuleType, evidence: Evidence, policy: Policy | None = None) -> list[Finding]:
    found = rule.check(_case(evidence, policy))
    return [] if found is None else [found] if isinstance(found, Finding) else list(found)


def _chat(**changes: object) -> WorkloadClass:
    return replace(WorkloadClass(name="chat", gpu_time_share=1.0), **changes)  # type: ignore[arg-type]  # a test names the field


def _with(evidence: Evidence, arm: str, telemetry: Telemetry) -> Evidence:
    changed = tuple(replace(each, telemetry=telemetry) if each.arm == arm else each for each in evidence.observations)
    return replace(evidence, observations=changed)


def test_every_rule_is_one_file_with_a_message_its_needs_and_a_check() -> None:
    found = plugins.modules(rules)
    assert len(found) >= 26
    for module in found:
        assert plugins.first_sentence(module).endswith("."), module.__name__
        assert module.NEEDS
        assert callable(module.check)


def test_a_rule_whose_inputs_are_missing_is_listed_with_what_it_lacks() -> None:
    findings, skipped = rulebook.run(_case(bare()))
    told = {each.rule: each.missing for each in skipped}
    assert told["prefix_break"] == ("evidence.prefix_breaks",)
    assert told["gain_lost_under_load"] == ("itl", "speeds")
    assert {each.rule for each in findings}.isdisjoint(told)


@pytest.mark.parametrize(
    ("context", "batch", "kind", "side"),
    [(300.0, 2.0, "opposes", "below"), (30_000.0, 4.0, "supports", "above"), (3_500.0, 2.0, "informs", "inside")],
)
def test_contexts_are_held_against_the_break_even_of_their_batch(context: float, batch: float, kind: str, side: str) -> None:
    evidence = bare(sweeps=sweeps(), workloads=(_chat(context_tokens=np.full(9, context), batch=batch),))
    (found,) = _findings(below_break_even, evidence)
    assert found.kind == kind
    assert side in found.message


def test_large_heads_on_hopper_lose_prefill_and_a_measurement_outranks_the_table() -> None:
    model = replace(LLAMA, name="gemma-4", head_dim=256)
    (prior,) = _findings(head_dim_256, bare(model=model))
    assert (prior.prior, prior.kind) == (True, "opposes")
    (measured,) = _findings(head_dim_256, compared(effect=0.3, noise=QUIET, model=model))
    assert (measured.prior, measured.kind, measured.workload) == (False, "opposes", "chat")
    (fine,) = _findings(head_dim_256, compared(effect=-0.1, noise=QUIET, model=model))
    assert fine.kind == "informs"
    blackwell = Deployment(gpu=Gpu(name="B200-SXM", sm=100))
    assert _findings(head_dim_256, bare(model=model, deployment=blackwell)) == []
    assert _findings(head_dim_256, bare()) == []


def test_window_layers_ask_for_the_arm_that_skips_them() -> None:
    hybrid = replace(LLAMA, window_layers=12, full_layers=12)
    (found,) = _findings(window_layers, bare(model=hybrid))
    assert "skip-layers sliding_window" in (found.next_command or "")
    assert _findings(window_layers, bare()) == []


def test_a_drop_beyond_the_margin_blocks_and_a_small_one_does_not() -> None:
    (found,) = _findings(accuracy_drop, compared(effect=0.0, change=-0.1, discordance=0.14))
    assert (found.kind, found.asks_for) == ("blocks", "avoid")
    assert _findings(accuracy_drop, compared(effect=0.0)) == []


def test_a_loss_that_grows_with_length_is_named_with_its_worst_bucket() -> None:
    rng = np.random.default_rng(1)
    buckets = tuple(
        answers(rng, arm="fp8", task="needle", context_tokens=8192.0 * 2**step, items=400, right=0.85, change=-0.03 * step, discordance=0.2)
        for step in range(5)
    )
    (found,) = _findings(worst_length, compared(effect=0.0, accuracy=buckets))
    assert "needle at 128k" in found.message
    assert "each time the context doubles" in found.message
    flat = tuple(
        answers(rng, arm="fp8", task="needle", context_tokens=c, items=3000, right=0.85, change=0.0, discordance=0.02)
        for c in (8192.0, 65536.0)
    )
    assert _findings(worst_length, compared(effect=0.0, accuracy=flat)) == []


def _all_down(count: int) -> Evidence:
    rng = np.random.default_rng(2)
    lengths = [8192.0 * 2**step for step in range(count)]
    return bare(
        accuracy=tuple(
            answers(rng, arm="fp8", task="mrcr", context_tokens=length, items=2000, right=0.8, change=-0.02, discordance=0.03)
            for length in lengths
        )
    )


def test_six_buckets_down_ask_for_calibration_five_do_not_and_calibrated_scales_are_not_asked_again() -> None:
    (found,) = _findings(systematic_shift, _all_down(6))
    assert (found.asks_for, found.screening) == ("calibrate", True)
    assert _findings(systematic_shift, _all_down(5)) == []
    assert _findings(systematic_shift, replace(_all_down(6), arms=(BF16, replace(FP8, scales="calibrated")))) == []


@pytest.mark.parametrize(
    ("sm", "dtype", "kernel", "validated"),
    [
        (90, "fp8_e4m3", "FLASH_ATTN(FA3)", True),
        (90, "fp8_e4m3", "FLASHINFER", False),
        (90, "fp8_e5m2", "FLASHINFER", True),
        (100, "fp8_e4m3", "FLASHINFER", True),
        (80, "fp8_e4m3", "FLASH_ATTN(FA2)", False),
        (90, "bfloat16", "TRITON_ATTN", True),
    ],
)
def test_backends_outside_the_table_are_named(sm: int, dtype: str, kernel: str, validated: bool) -> None:  # noqa: FBT001  # a column of the table
    arm = replace(FP8, observed_dtype=dtype, kernel=kernel)
    found = _findings(unvalidated_backend, bare(arms=(BF16, arm), deployment=Deployment(gpu=replace(H100, sm=sm))))
    assert (found == []) == validated


def test_a_kernel_that_changed_with_the_dtype_asks_for_a_third_arm_until_it_is_there() -> None:
    moved = replace(FP8, kernel="FLASHINFER")
    (found,) = _findings(kernel_changed, bare(arms=(BF16, moved)))
    assert "FLASHINFER" in (found.next_command or "")
    third = replace(BF16, name="bf16-flashinfer", kernel="FLASHINFER")
    (known,) = _findings(kernel_changed, bare(arms=(BF16, moved, third)))
    assert (known.next_command, "bf16-flashinfer has the reference's dtype" in known.message) == (None, True)
    assert _findings(kernel_changed, bare()) == []


def test_priors_of_another_gpu_are_shown_and_decide_nothing() -> None:
    prior = Prior(what="break_even_tokens", arm="fp8", value=7010.0, unit="tokens", gpu="H100-SXM", source="vLLM blog 2026-04-22")
    (found,) = _findings(other_gpu, bare(priors=(prior, replace(prior, gpu="B200-SXM"))))
    assert found.message.startswith("1 published figures shown beside yours come from B200-SXM, not from H100-SXM")
    assert _findings(other_gpu, bare(priors=(prior,))) == []


def test_a_gain_that_the_lines_promise_and_the_load_does_not_keep_is_told() -> None:
    workload = _chat(context_tokens=np.full(9, 20_000.0), batch=8.0)
    (found,) = _findings(gain_lost_under_load, compared(effect=-0.1, noise=QUIET, sweeps=sweeps(), workloads=(workload,)))
    assert "promise 2" in found.message  # 23 % at 160k tokens of the batch
    assert _findings(gain_lost_under_load, compared(effect=-0.3, noise=QUIET, sweeps=sweeps(), workloads=(workload,))) == []


def test_a_load_that_fills_the_pool_is_bound_by_it() -> None:
    evidence = bare(workloads=(_chat(working_set_tokens=400_000.0),))
    server, chat = _findings(capacity_bound, evidence)
    assert (server.workload, chat.workload) == (None, "chat")
    assert "95% of the pool of bf16" in chat.message
    assert "2.00x the tokens" in chat.message
    assert _findings(capacity_bound, bare(workloads=(_chat(working_set_tokens=40_000.0),))) == []


def test_preemptions_say_that_the_pool_binds_whatever_the_sizes_say() -> None:
    evidence = compared(effect=0.0, workloads=(_chat(working_set_tokens=40_000.0),))
    found = _findings(capacity_bound, _with(evidence, "bf16", Telemetry(preemptions=12.0)))
    assert [each.workload for each in found] == ["chat"]


def test_images_need_answers_about_images() -> None:
    (found,) = _findings(multimodal_tokens, compared(effect=0.0, workloads=(_chat(image_tokens_share=0.4),)))
    assert (found.asks_for, found.need is not None) == ("test further", True)
    own = compared(effect=0.0, workloads=(_chat(image_tokens_share=0.4),))
    assert _findings(multimodal_tokens, replace(own, accuracy=tuple(replace(each, workload="chat") for each in own.accuracy))) == []
    assert _findings(multimodal_tokens, compared(effect=0.0, workloads=(_chat(image_tokens_share=0.01),))) == []


def test_turns_that_wait_for_their_first_token_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    waiting = simulated_calls(rng, pairs=12, effect=0.1, noise=QUIET, ttft_share=0.8)
    (found,) = _findings(ttft_bound, bare(observations=observed(*waiting)))
    assert (found.kind, found.workload) == ("opposes", "chat")
    assert _findings(ttft_bound, compared(effect=0.1)) == []


def test_a_prefix_break_names_the_segment_and_its_price() -> None:
    small = PrefixBreak(workload="chat", segment="clock", position_tokens=120.0, calls=40, reprefilled_tokens=900.0)
    large = PrefixBreak(workload="chat", segment="memory", position_tokens=3100.0, calls=40, reprefilled_tokens=52_000.0)
    first, second = _findings(prefix_break, bare(prefix_breaks=(small, large)))
    assert "Segment 'memory', 3,100 tokens into the prompt of chat" in first.message
    assert "52k tokens are computed again in each of 40 calls" in first.message
    assert "'clock'" in second.message


def test_of_two_features_that_exclude_each_other_the_better_is_kept() -> None:
    alone = replace(FP8, prefix_caching=False)
    (worse,) = _findings(one_of_two, compared(effect=0.4, arms=(BF16, alone)))
    assert (worse.kind, "keep prefix caching" in worse.message) == ("opposes", True)
    (better,) = _findings(one_of_two, compared(effect=-0.2, arms=(BF16, alone)))
    assert (better.kind, "keep the cache dtype of fp8" in better.message) == ("supports", True)
    crash = Probe(arm="fp8", prefix_caching=True, outcome="crash")
    (untried,) = _findings(one_of_two, bare(probes=(crash,)))
    assert "ends in: crash" in untried.message
    assert _findings(one_of_two, compared(effect=-0.2)) == []


def test_lengths_that_nobody_asked_about_are_told_with_their_share() -> None:
    lengths = np.concatenate([np.full(80, 20_000.0), np.full(20, 200_000.0)])
    found = _findings(untested_lengths, compared(effect=0.0, workloads=(_chat(context_tokens=lengths),)))
    assert [each.workload for each in found] == [None, "chat"]
    assert "20.0% of the calls of chat are longer than 128k, up to 195k" in found[1].message
    assert _findings(untested_lengths, compared(effect=0.0)) == []


def test_machines_that_never_changed_places_are_named() -> None:
    two = Deployment(gpu=H100, machines=("a", "b"))
    arms = (replace(BF16, machine="a"), replace(FP8, machine="b"))
    (found,) = _findings(machine_or_arm, compared(effect=0.0, deployment=two, arms=arms))
    assert "cannot tell machine from arm below 5%" in found.message
    assert _findings(machine_or_arm, compared(effect=0.0, deployment=replace(two, swapped=True), arms=arms)) == []


def test_without_a_control_the_floor_is_unknown() -> None:
    (found,) = _findings(noise_floor, compared(effect=0.0))
    assert (found.kind, found.next_command) == ("opposes", "agentload replay TRACE --endpoints ENDPOINTS --aa bf16")


def test_what_a_server_changes_by_itself_stands_beside_what_an_arm_changes() -> None:
    asked = AccuracyBucket(arm="fp8", task="needle", context_tokens=8192.0, both=180, reference_only=6, arm_only=4, neither=10)
    again = replace(asked, arm="bf16", reference_only=5, arm_only=5)
    (found,) = _findings(same_question_twice, bare(accuracy=(asked,), aa_accuracy=(again,)))
    assert (found.kind, found.arm, found.leg, found.next_command) == ("informs", "bf16", "safe", None)
    assert found.message == "bf16 asked twice changed 5.0% of 200 answers, +0.0 pp [-3.6, +3.6]; fp8 changed 5.0%."


def test_equal_servers_that_lose_more_than_they_win_are_suspect() -> None:
    again = AccuracyBucket(arm="bf16", task="needle", context_tokens=8192.0, both=170, reference_only=20, arm_only=0, neither=10)
    (found,) = _findings(same_question_twice, bare(aa_accuracy=(again,)))
    assert (found.kind, found.next_command) == ("opposes", "agentload probe --matrix --endpoints ENDPOINTS")
    assert found.arm is None  # every arm is held against the reference: a doubt about it is one about each
    (found,) = _findings(same_question_twice, bare(aa_accuracy=(replace(again, arm="fp8"),)))
    assert (found.kind, found.arm) == ("opposes", "fp8")
    assert _findings(same_question_twice, bare()) == []


def test_a_slope_below_sixty_percent_of_the_bandwidth_leaves_a_gain() -> None:
    slow = sweeps(fp8_slope=4.0e-5)  # 1.6 TB/s of 3.35
    (found,) = _findings(idle_bandwidth, bare(sweeps=slow))
    assert "49% of the peak" in found.message
    assert _findings(idle_bandwidth, bare(sweeps=sweeps())) == []


def test_a_bent_curve_is_not_extrapolated() -> None:
    reference, arm = sweeps()
    bent = replace(arm, itl_ms=np.where(arm.context_tokens > 60_000, 1.1, 1.0) * arm.itl_ms)
    (found,) = _findings(not_a_line, bare(sweeps=(reference, bent)))
    assert found.arm == "fp8"
    assert "do not extrapolate" in found.message


def test_a_limit_that_only_the_arm_breaks_blocks_it() -> None:
    policy = Policy(slos=(Slo(workload="chat", ttft_ms=3500.0),))
    (found,) = _findings(slo_broken, compared(effect=0.8, pairs=24), policy)
    assert (found.asks_for, found.kind) == ("avoid", "blocks")
    assert _findings(slo_broken, compared(effect=-0.1, pairs=24), policy) == []
    assert _findings(slo_broken, compared(effect=0.8, pairs=24), Policy(slos=(Slo(workload="chat", ttft_ms=500.0),))) == []


def test_missing_evidence_is_priced() -> None:
    told = [each.message for each in _findings(missing_evidence, bare())]
    assert told[0] == "chat has fewer than 3 block pairs on fp8."
    assert told[1].startswith("No paired answers on fp8: about 1,3")
    (open_question,) = _findings(missing_evidence, compared(effect=-0.03, pairs=5))
    assert "is not settled against 3%" in open_question.message
    assert _findings(missing_evidence, compared(effect=-0.2)) == []


def test_more_garbage_than_on_the_reference_is_a_veto() -> None:
    buckets = compared(effect=0.0).accuracy
    clean = tuple(replace(each, garbage=1, reference_garbage=0) for each in buckets)
    assert _findings(garbage_answers, compared(effect=0.0, accuracy=clean)) == []
    broken = (*clean[:-1], replace(clean[-1], garbage=60))
    (found,) = _findings(garbage_answers, compared(effect=0.0, accuracy=broken))
    assert found.asks_for == "avoid"
    assert found.message == "60 of 200 answers to needle at 128k are garbage on fp8, 0 on bf16."


def test_a_pool_that_stayed_empty_says_nothing_about_capacity() -> None:
    seen = (("bf16", Telemetry(pool_filled_share=0.9)), ("fp8", Telemetry(pool_filled_share=0.1)))
    (found,) = _findings(pool_never_filled, bare(server=seen))
    assert found.message.startswith("The KV pool was full for 10% of the run on fp8")
    assert _findings(pool_never_filled, bare(server=seen, workloads=(_chat(working_set_tokens=1000.0),))) == []


def test_drafts_that_are_accepted_less_often_are_told() -> None:
    evidence = _with(_with(compared(effect=0.0), "bf16", Telemetry(acceptance_rate=0.725)), "fp8", Telemetry(acceptance_rate=0.63))
    (found,) = _findings(draft_acceptance, evidence)
    assert "63.0% on fp8, 72.5% on bf16" in found.message


def test_the_issue_table_is_dated_linked_and_free_of_repeats() -> None:
    as_of, issues = table()
    assert as_of == "2026-09"
    assert len({each.id for each in issues}) == len(issues) >= 20
    assert all(each.url.startswith("https://github.com/") for each in issues)


@pytest.mark.parametrize("issue", table()[1], ids=lambda issue: issue.id)
def test_an_issue_applies_to_the_deployment_it_describes_and_to_no_plain_llama(issue: Issue) -> None:
    when = issue.when
    gpu = Gpu(name=when.gpu or "H100-SXM", sm=when.sm[0] if when.sm else 90)
    arm = replace(
        FP8,
        observed_dtype=when.dtype if when.dtype not in (None, "fp8") else "fp8_e4m3",
        expected_dtype=when.expected or "fp8",
        kernel=when.kernel or "NONE",
        prefix_caching=when.prefix_caching,
        flags=(f"--{when.flag}",) if when.flag else (),
    )
    model = Model(name=when.model or "other", head_dim=when.head_dim_from, attention="hybrid" if when.attention else "gqa")
    running = when.version_from or when.version_at_most or "0.33.0"
    described = bare(
        arms=(BF16, arm),
        model=model,
        deployment=Deployment(gpu=gpu, version=running, tensor_parallel=1 + (when.tensor_parallel_above or 0)),
        workloads=(_chat(context_tokens=np.full(3, 1 + (when.context_above or 0.0))),),
    )
    assert known_issues.applies(issue, _case(described), arm)
    assert not known_issues.applies(issue, _case(bare()), FP8)


def test_the_hopper_kernel_before_its_fix_is_a_veto_until_answers_measured_here_are_good() -> None:
    old = Deployment(gpu=H100, version="0.10.2")
    found = _findings(known_issues, bare(deployment=old))
    assert [(each.kind, each.asks_for) for each in found] == [("blocks", "avoid")]
    good = _findings(known_issues, compared(effect=0.0, deployment=old, items=400, discordance=0.03))
    assert [(each.kind, each.asks_for) for each in good] == [("informs", None)]
    assert "measured here do not show it" in good[0].message


@pytest.mark.parametrize(("text", "numbers"), [("0.33.0", (0, 33, 0)), ("v0.19.1rc2.dev3", (0, 19, 1)), ("nightly", ())])
def test_versions_are_read_by_their_leading_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers


def test_an_observation_without_calls_hurts_no_rule() -> None:
    evidence = bare(observations=(Observation(workload="chat", arm="fp8", telemetry=Telemetry(hit_rate=0.5)),))
    findings, _ = rulebook.run(_case(evidence))
    assert {each.rule for each in findings} >= {"missing_evidence"}
