"""Build small pieces of evidence to turn one fact at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.deployment import Deployment, GpuFacts, Model
from advisor.evidence import (
    AccuracyBucket,
    Arm,
    Calls,
    ClientHealth,
    ContextSweep,
    Evidence,
    Observation,
    Telemetry,
    WorkloadClass,
)
from advisor.loads import CapacityPoint
from tests.advisor.worlds import Noise, answers, simulated_calls, simulated_sweep

H100 = GpuFacts(
    name="H100-SXM", sm=90, bf16_tflops=989, fp8_tflops=1979, hbm_tb_s=3.35, usd_per_hour=3.0
)
LLAMA = Model(
    name="Llama-3.1-8B",
    params=8.03e9,
    active_params=7.5e9,
    weight_bits=16,
    layers=32,
    full_layers=32,
    window_layers=0,
    heads=32,
    kv_heads=8,
    head_dim=128,
    attention="gqa",
)
BF16 = Arm(
    name="bf16",
    expected_dtype="auto",
    observed_dtype="bfloat16",
    kernel="FLASH_ATTN(FA3)",
    prefix_caching=True,
    kv_bytes_per_token=131072,
    pool_tokens=420_000,
    expected_pool_tokens=421_000,
)
FP8 = Arm(
    name="fp8",
    expected_dtype="fp8",
    observed_dtype="fp8_e4m3",
    kernel="FLASH_ATTN(FA3)",
    scales="default",
    prefix_caching=True,
    kv_bytes_per_token=65536,
    pool_tokens=840_000,
    expected_pool_tokens=842_000,
)
SPREAD = np.geomspace(6_000, 131_072, 200)  # contexts of calls that every bucket speaks about
BUCKETS = (8192.0, 16384.0, 32768.0, 65536.0, 98304.0, 131072.0)


def bare(**changes: object) -> Evidence:
    """Return evidence with facts and no observation."""
    base = Evidence(
        run="r1",
        kind="simulated",
        model=LLAMA,
        deployment=Deployment(version="0.33.0", gpu=H100, machines=("a",), peak_agents=8),
        reference="bf16",
        arms=(BF16, FP8),
        workloads=(WorkloadClass(name="chat", gpu_time_share=1.0, context_tokens=SPREAD, batch=4),),
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # a test names the field


def observed(
    reference: Calls, arm: Calls, *, workload: str = "chat", name: str = "fp8", idle: bool = True
) -> tuple[Observation, ...]:
    """Return both observations of one workload; *idle*
    says that the pool was never in danger of filling.
    """
    telemetry = (
        Telemetry(
            peak_kv_usage=0.1, preemptions=0.0, minutes=30.0, hit_rate=0.6, ideal_hit_rate=0.6
        )
        if idle
        else None
    )
    return (
        Observation(workload=workload, arm="bf16", calls=reference, telemetry=telemetry),
        Observation(workload=workload, arm=name, calls=arm, telemetry=telemetry),
    )


def compared(
    *,
    effect: float,
    pairs: int = 16,
    seed: int = 1,
    noise: Noise | None = None,
    items: int = 200,
    change: float = 0.0,
    discordance: float = 0.06,
    restarts: int | None = None,
    **changes: object,
) -> Evidence:
    """Return evidence of one workload, with accuracy in six
    buckets; servers start for every pair, or *restarts* times.
    """
    rng = np.random.default_rng(seed)
    starts = pairs if restarts is None else restarts
    calls = simulated_calls(
        rng, pairs=pairs, effect=effect, noise=noise or Noise(), swapped=False, restarts=starts
    )
    buckets: tuple[AccuracyBucket, ...] = tuple(
        answers(
            rng,
            arm="fp8",
            task="needle",
            context_tokens=length,
            items=items,
            right=0.85,
            change=change,
            discordance=discordance,
        )
        for length in BUCKETS
        if items
    )
    base = bare(
        observations=observed(*calls),
        accuracy=buckets,
        health=(
            ClientHealth(
                send_lag_p99_ms=0.2,
                loop_stall_max_ms=3.0,
                coalesced_share=0.0,
                stamp_source="kernel",
            ),
        ),
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # a test names the field


def sweeps(
    seed: int = 1, *, fp8_intercept: float = 6.58, fp8_slope: float = 2.37e-5, pairs: int = 8
) -> tuple[ContextSweep, ...]:
    """Return sweeps of both arms with the published lines of Llama-3.1-8B on one H100."""
    rng = np.random.default_rng(seed)
    return (
        simulated_sweep(rng, arm="bf16", intercept=6.44, slope=4.37e-5, pairs=pairs),
        simulated_sweep(rng, arm="fp8", intercept=fp8_intercept, slope=fp8_slope, pairs=pairs),
    )


def search(
    arm: str, limit: float, *, workload: str | None = None, minutes: float = 15.0
) -> tuple[CapacityPoint, ...]:
    """Return the trials of a search on an arm that carries so many
    agents: below it most turns hold, above it fewer and fewer.
    """
    shares = {
        0.5: 0.99,
        0.8: 0.99,
        0.9: 0.98,
        0.95: 0.97,
        0.98: 0.96,
        1.02: 0.94,
        1.05: 0.92,
        1.1: 0.85,
        1.2: 0.7,
        1.5: 0.3,
    }
    return tuple(
        CapacityPoint(
            arm=arm,
            workload=workload,
            agents=round(factor * limit),
            turns=500,
            within_slo=round(500 * share),
            minutes=minutes,
            pool_filled=True,
        )
        for factor, share in shares.items()
    )
