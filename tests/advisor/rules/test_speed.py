"""Rules about what makes an arm faster or slower."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.deployment import Deployment, GpuFacts
from advisor.evidence import Observation, StartHistory, Telemetry
from advisor.rules import (
    below_break_even,
    draft_acceptance,
    gain_lost_under_load,
    head_dim_256,
    idle_bandwidth,
    kernel_changed,
    not_a_line,
    ttft_bound,
    unvalidated_backend,
    window_layers,
)
from advisor.steps import ArmsFile
from tests.advisor.cases import BF16, FP8, H100, LLAMA, bare, compared, observed, sweeps
from tests.advisor.rules.asking import QUIET, chat_class, findings, with_telemetry
from tests.advisor.worlds import Noise, simulated_calls


@pytest.mark.parametrize(
    ("context", "batch", "kind", "side"),
    [
        (300.0, 2.0, "opposes", "below"),
        (30_000.0, 4.0, "supports", "above"),
        (3_500.0, 2.0, "informs", "which arm is faster there is open"),
    ],
)
def test_contexts_are_held_against_the_break_even_of_their_batch(
    context: float, batch: float, kind: str, side: str
) -> None:
    known = StartHistory(spread=0.001, source="60 starts")
    evidence = bare(
        sweeps=sweeps(),
        starts=known,
        workloads=(chat_class(context_tokens=np.full(9, context), batch=batch),),
    )
    (found,) = findings(below_break_even, evidence)
    assert found.kind == kind
    assert side in found.message


def test_neighbours_of_other_classes_count_as_tokens_of_the_batch() -> None:
    reference, arm = simulated_calls(
        np.random.default_rng(4), pairs=3, effect=0.0, noise=QUIET, swapped=False
    )
    crowded = replace(reference, batch_kv_tokens=np.full(reference.turn_ms.shape, 50_000.0))
    alone = chat_class(context_tokens=np.full(9, 300.0), batch=2.0)
    (found,) = findings(
        below_break_even,
        bare(sweeps=sweeps(), observations=observed(crowded, arm), workloads=(alone,)),
    )
    assert (found.kind, "batches of 49k KV tokens" in found.message) == ("supports", True)


def test_large_heads_on_hopper_lose_prefill_and_a_measurement_outranks_the_table() -> None:
    model = replace(LLAMA, name="gemma-4", head_dim=256)
    (prior,) = findings(head_dim_256, bare(model=model))
    assert (prior.prior, prior.kind) == (True, "opposes")
    (measured,) = findings(head_dim_256, compared(effect=0.3, noise=QUIET, model=model))
    assert (measured.prior, measured.kind, measured.workload) == (False, "opposes", "chat")
    assert "attention in prefill took 1.55 to 1.62 times as long in FP8" in measured.message
    (fine,) = findings(head_dim_256, compared(effect=-0.1, noise=QUIET, model=model))
    assert fine.kind == "informs"
    blackwell = Deployment(gpu=GpuFacts(name="B200-SXM", sm=100))
    assert findings(head_dim_256, bare(model=model, deployment=blackwell)) == []
    assert findings(head_dim_256, bare()) == []


def test_window_layers_ask_for_the_arm_that_skips_them() -> None:
    hybrid = replace(LLAMA, window_layers=12, full_layers=12)
    (found,) = findings(window_layers, bare(model=hybrid))
    assert "fp8-skip-sw (--kv-cache-dtype-skip-layers sliding_window)" in found.message
    assert found.next_step == ArmsFile(arm="fp8-skip-sw")
    assert findings(window_layers, bare()) == []
    assert (
        findings(
            window_layers,
            bare(model=hybrid, arms=(BF16, replace(FP8, skip_layers=("sliding_window",)))),
        )
        == []
    )
    blackwell = Deployment(gpu=GpuFacts(name="B200-SXM", sm=100))
    (doubted,) = findings(
        window_layers,
        bare(model=hybrid, deployment=blackwell, arms=(BF16, replace(FP8, kernel="FLASHINFER"))),
    )
    assert "did not take that flag in vLLM 0.19.1" in doubted.message


@pytest.mark.parametrize(
    ("gain", "noise", "kind"),
    [(0.97, 0.001, "supports"), (0.997, 0.02, "informs"), (1.0, 0.0, "informs")],
)
def test_skipping_window_layers_is_supported_where_it_is_shown_to_beat_full_fp8(
    gain: float, noise: float, kind: str
) -> None:
    rng = np.random.default_rng(4)
    reference, full = simulated_calls(
        rng, pairs=12, effect=-0.03, noise=QUIET, swapped=False, restarts=12
    )
    skip = replace(full, turn_ms=full.turn_ms * gain * np.exp(rng.normal(0, noise, 12))[full.pair])
    arms = (BF16, FP8, replace(FP8, name="skip", skip_layers=("sliding_window",)))
    evidence = bare(
        model=replace(LLAMA, window_layers=12), arms=arms, observations=observed(reference, full)
    )
    both = replace(
        evidence,
        observations=(*evidence.observations, Observation(workload="chat", arm="skip", calls=skip)),
    )
    (found,) = findings(window_layers, both)
    assert (found.kind, "turn by turn, the first differs from the second by" in found.message) == (
        kind,
        True,
    )


@pytest.mark.parametrize(
    ("sm", "dtype", "kernel", "validated"),
    [
        (90, "fp8_e4m3", "FLASH_ATTN(FA3)", True),
        (90, "fp8_e4m3", "FLASH_ATTN", True),  # without a start-up log nobody tells the version
        (90, "fp8_e4m3", "FLASHINFER", False),
        (90, "fp8_e5m2", "FLASHINFER", True),
        (100, "fp8_e4m3", "FLASHINFER", True),
        (80, "fp8_e4m3", "FLASH_ATTN(FA2)", False),
        (90, "bfloat16", "TRITON_ATTN", True),
    ],
)
def test_backends_outside_the_table_are_named(
    sm: int,
    dtype: str,
    kernel: str,
    validated: bool,  # noqa: FBT001  # a column of the table
) -> None:
    arm = replace(FP8, observed_dtype=dtype, kernel=kernel)
    found = findings(
        unvalidated_backend, bare(arms=(BF16, arm), deployment=Deployment(gpu=replace(H100, sm=sm)))
    )
    assert (found == []) == validated


def test_a_kernel_that_changed_with_the_dtype_asks_for_a_third_arm_until_it_is_there() -> None:
    moved = replace(FP8, kernel="FLASHINFER")
    (found,) = findings(kernel_changed, bare(arms=(BF16, moved)))
    assert "bf16-same-backend (--attention-backend FLASHINFER) separates them" in found.message
    assert found.next_step == ArmsFile(arm="bf16-same-backend")
    third = replace(BF16, name="bf16-flashinfer", kernel="FLASHINFER")
    (known,) = findings(kernel_changed, bare(arms=(BF16, moved, third)))
    assert (known.next_step, "bf16-flashinfer has the reference's dtype" in known.message) == (
        None,
        True,
    )
    assert findings(kernel_changed, bare()) == []


def test_a_gain_that_the_lines_promise_and_the_load_does_not_keep_is_told() -> None:
    workload = chat_class(context_tokens=np.full(9, 20_000.0), batch=8.0)
    (found,) = findings(
        gain_lost_under_load,
        compared(effect=-0.1, noise=QUIET, sweeps=sweeps(), workloads=(workload,)),
    )
    assert "promise 2" in found.message  # 23% at 160k tokens of the batch
    assert (
        findings(
            gain_lost_under_load,
            compared(effect=-0.3, noise=QUIET, sweeps=sweeps(), workloads=(workload,)),
        )
        == []
    )
    unsure = Noise(call=0.3, wander=0.2, block=0.15)
    assert (
        findings(
            gain_lost_under_load,
            compared(effect=-0.1, pairs=3, noise=unsure, sweeps=sweeps(), workloads=(workload,)),
        )
        == []
    )


def test_turns_that_wait_for_their_first_token_are_told_apart() -> None:
    rng = np.random.default_rng(3)
    waiting = simulated_calls(rng, pairs=12, effect=0.1, noise=QUIET, ttft_share=0.8)
    (found,) = findings(ttft_bound, bare(observations=observed(*waiting)))
    assert (found.kind, found.workload) == ("opposes", "chat")
    assert findings(ttft_bound, compared(effect=0.1)) == []


def test_a_slope_below_sixty_percent_of_the_bandwidth_leaves_a_gain() -> None:
    slow = sweeps(fp8_slope=4.0e-5)  # 1.6 TB/s of 3.35
    (found,) = findings(idle_bandwidth, bare(sweeps=slow))
    assert "49% of the peak" in found.message
    assert findings(idle_bandwidth, bare(sweeps=sweeps())) == []


def test_a_bent_curve_is_not_extrapolated() -> None:
    reference, arm = sweeps()
    bent = replace(arm, itl_ms=np.where(arm.context_tokens > 60_000, 1.1, 1.0) * arm.itl_ms)
    (found,) = findings(not_a_line, bare(sweeps=(reference, bent)))
    assert found.arm == "fp8"
    assert "do not extrapolate" in found.message


def test_drafts_that_are_accepted_less_often_are_told() -> None:
    evidence = with_telemetry(
        with_telemetry(compared(effect=0.0), "bf16", Telemetry(acceptance_rate=0.725)),
        "fp8",
        Telemetry(acceptance_rate=0.63),
    )
    (found,) = findings(draft_acceptance, evidence)
    assert "63.0% on fp8, 72.5% on bf16" in found.message
