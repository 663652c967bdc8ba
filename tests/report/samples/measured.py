"""What the sample deployment measured: calls, sweeps, answers. Every figure is invented."""

from __future__ import annotations

import numpy as np

from advisor.deployment import Deployment, GpuFacts, Model
from advisor.estimate import Estimate
from advisor.evidence import (
    AaControl,
    AccuracyBucket,
    Arm,
    Calls,
    ClientHealth,
    ContextSweep,
    Evidence,
    Kind,
    Observation,
    Prior,
    Telemetry,
    WorkloadClass,
)
from advisor.loads import CapacityPoint, PairLoad, TwinChange

ARMS = ("bf16", "fp8", "fp8-skip-sw")
CHALLENGERS = ARMS[1:]
CLASSES = (("code", 0.46), ("long_chat", 0.33), ("rag", 0.17), ("multimodal", 0.04))
# (turn time change, half width) by class and challenger
TURN = {
    ("code", "fp8"): (-0.09, 0.04),
    ("code", "fp8-skip-sw"): (-0.08, 0.038),
    ("long_chat", "fp8"): (-0.04, 0.041),
    ("long_chat", "fp8-skip-sw"): (-0.06, 0.03),
    ("rag", "fp8"): (0.05, 0.031),
    ("rag", "fp8-skip-sw"): (0.01, 0.029),
    (None, "fp8"): (-0.055, 0.022),
    (None, "fp8-skip-sw"): (-0.06, 0.019),
}
SLOPES = {"bf16": 4.4e-5, "fp8": 2.4e-5, "fp8-skip-sw": 2.6e-5}
INTERCEPTS = {"bf16": 6.4, "fp8": 6.6, "fp8-skip-sw": 6.45}
LENGTHS = (8_192, 32_768, 65_536, 131_072)


HITS = {12: 0.94, 18: 0.93, 24: 0.71, 30: 0.52, 36: 0.38}
"""Hit rates of the arm in use, by sessions at once."""
ROOM = {"bf16": 1.0, "fp8": 2.0, "fp8-skip-sw": 1.5}


def estimate(
    value: float,
    half: float | None = None,
    *,
    unit: str = "relative",
    n: int = 24,
    method: str = "block pairs",
) -> Estimate:
    low, high = (None, None) if half is None else (value - half, value + half)
    return Estimate(value=value, low=low, high=high, n=n, unit=unit, method=method)


PAIR_LOAD = PairLoad(sessions=8, user_wait_s=5.0, cuts_waits=True, held_tokens=405_319.0)
TWIN_CHANGES = tuple(
    TwinChange(arm=arm, agents=21, is_own=True, relative=relative)
    for arm, relative in (
        ("fp8", estimate(-0.35, 0.03, n=8, method="twins")),
        ("fp8-skip-sw", estimate(-0.4, 0.1, n=8).as_bound()),
    )
)


def calls(workload: str, arm: str, *, pairs: int = 8, per_pair: int = 12) -> Calls:
    """Draw calls that look like one class on one arm."""
    rng = np.random.default_rng([len(workload), ARMS.index(arm)])
    rows = pairs * per_pair
    pair = np.repeat(np.arange(pairs), per_pair)
    prompt = rng.lognormal(10.0, 0.7, rows).round()
    computed = (prompt * rng.uniform(0.05, 0.5, rows)).round()
    output = rng.integers(80, 500, rows).astype(float)
    batch = prompt * 6
    tpot = INTERCEPTS[arm] + SLOPES[arm] * batch + rng.normal(0, 0.15, rows)
    ttft = 40 + 0.035 * computed + rng.exponential(20, rows)
    return Calls(
        restart=np.zeros(rows, dtype=np.int64),
        pair=pair,
        block=pair * len(ARMS) + ARMS.index(arm),
        session=np.arange(rows) // 3,
        turn=np.arange(rows) % 3,
        start_s=np.asarray(
            pair * 60.0 + np.tile(np.linspace(0, 40, per_pair), pairs), dtype=np.float64
        ),
        ok=np.ones(rows, dtype=np.bool_),
        ttft_ms=ttft,
        tpot_ms=tpot,
        turn_ms=ttft + tpot * output,
        prompt_tokens=prompt,
        output_tokens=output,
        computed_tokens=computed,
        batch_kv_tokens=batch,
    )


def sweep(arm: str) -> ContextSweep:
    rng = np.random.default_rng(ARMS.index(arm))
    context = np.tile([1_024.0, 4_096.0, 16_384.0, 32_768.0, 65_536.0, 120_000.0], 6)
    return ContextSweep(
        arm=arm,
        pair=np.repeat(np.arange(6), 6),
        users=np.ones(36, dtype=np.int64),
        context_tokens=context,
        itl_ms=INTERCEPTS[arm] + SLOPES[arm] * context + rng.normal(0, 0.06, 36),
        ttft_ms=20
        + 0.03 * context
        + (4e-7 if arm == "bf16" else 5e-7) * context**2
        + rng.exponential(15, 36),
        prompt_tokens=context,
        computed_tokens=context,
    )


def evidence(kind: Kind = "measured") -> Evidence:
    return Evidence(
        run="r-2026-11-20-a1",
        kind=kind,
        model=Model(
            name="acme/hybrid-30b",
            layers=48,
            full_layers=8,
            window_layers=40,
            attention="hybrid",
            checkpoint="9f3c",
        ),
        deployment=Deployment(
            version="0.33.0",
            gpu=GpuFacts(name="H100-SXM", sm=90),
            tensor_parallel=1,
            max_model_len=131_072,
            machines=("node-a", "node-b"),
            swapped=True,
            peak_agents=42,
        ),
        reference="bf16",
        arms=(
            Arm(
                name="bf16",
                expected_dtype="auto",
                observed_dtype="bfloat16",
                kernel="FLASH_ATTN(FA3)",
                pool_tokens=512_000.0,
            ),
            Arm(
                name="fp8",
                expected_dtype="fp8_e4m3",
                observed_dtype="fp8_e4m3",
                kernel="FLASH_ATTN(FA3)",
                pool_tokens=1_024_000.0,
            ),
            Arm(
                name="fp8-skip-sw",
                expected_dtype="fp8_e4m3",
                observed_dtype="fp8_e4m3",
                kernel="FLASH_ATTN(FA3)",
                skip_layers=("sliding_window",),
                flags=("--attention-backend", "FLASH_ATTN", "--max-num-batched-tokens", "8192"),
                all_flags=True,
                weights="./calibrated/hybrid-30b-fp8-kv-tensor",
                pool_tokens=629_760.0,
            ),
        ),
        workloads=tuple(WorkloadClass(name=name, gpu_time_share=share) for name, share in CLASSES),
        observations=tuple(
            Observation(workload=name, arm=arm, calls=calls(name, arm))
            for name, _ in CLASSES
            for arm in ARMS
        ),
        pair_load=PAIR_LOAD,
        twin_changes=TWIN_CHANGES,
        server=tuple(
            (
                arm,
                Telemetry(
                    pool_filled_share=share, minutes=10.0, preemptions=preempted, hit_rate=hits
                ),
            )
            for arm, share, preempted, hits in (
                ("bf16", 0.9, 31.0, 0.81),
                ("fp8", 0.4, 2.0, 0.92),
                ("fp8-skip-sw", 0.8, 12.0, 0.86),
            )
        ),
        sweeps=tuple(sweep(arm) for arm in ARMS),
        capacity=tuple(
            CapacityPoint(
                arm=arm,
                agents=agents,
                turns=240,
                within_slo=min(240, round(240 * (1.12 - agents / limit * 0.17))),
                minutes=10.0,
                hit_rate=HITS[max(12, 6 * round(agents / ROOM[arm] / 6))],
                ideal_hit_rate=0.95,
            )
            for arm, limit in (("bf16", 24), ("fp8", 34), ("fp8-skip-sw", 28))
            for agents in (12, 18, 24, 30, 36)
        ),
        accuracy=tuple(
            AccuracyBucket(
                arm=arm,
                task="needle",
                context_tokens=float(length),
                both=156,
                reference_only=5,
                arm_only=3,
                neither=22,
            )
            for arm in CHALLENGERS
            for length in LENGTHS
        ),
        health=(
            ClientHealth(send_lag_p99_ms=0.4, stamp_source="kernel", void_blocks=1, blocks=24),
        ),
        aa=(
            AaControl(
                workload="code",
                first=calls("code", "bf16"),
                second=calls("code", "bf16"),
                across_machines=True,
            ),
        ),
        priors=(
            Prior(
                what="break_even_tokens",
                arm="fp8-skip-sw",
                value=7_659.0,
                unit="tokens",
                gpu="H100-SXM",
                version="0.19.1",
                source="vLLM blog, The State of FP8 KV-Cache and Attention Quantization in vLLM",
                dated="2026-04-22",
            ),
        ),
        dated="2026-11-20",
    )
