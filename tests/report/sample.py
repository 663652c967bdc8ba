"""A made-up deployment whose decision has something of everything a report can show. Every figure in it is invented."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from advisor import words
from advisor.estimate import Estimate
from advisor.evidence import (
    AaControl,
    AccuracyBucket,
    Arm,
    Calls,
    CapacityPoint,
    ClientHealth,
    Deployment,
    Evidence,
    Gpu,
    Kind,
    Model,
    Observation,
    Prior,
    Sweep,
    Telemetry,
    WorkloadClass,
)
from advisor.verdict import (
    ArmVerdict,
    BreakEven,
    BucketResult,
    Capacity,
    Change,
    Choice,
    Decision,
    Figure,
    Finding,
    Gate,
    Inequality,
    ItlLine,
    Leg,
    LegState,
    Need,
    Skipped,
    TtftCurve,
    Word,
)
from agentload.importers.parts.metrics import HITS, KV_USAGE, OUTPUT, PROMPT, QUERIES, RUNNING, TTFT, Histogram, Metrics
from agentload.report.facts import Made, Retrieval, RunFacts, Served, Timeline

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


def estimate(value: float, half: float | None = None, *, unit: str = "relative", n: int = 24, method: str = "block pairs") -> Estimate:
    low, high = (None, None) if half is None else (value - half, value + half)
    return Estimate(value=value, low=low, high=high, n=n, unit=unit, method=method)


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
        start_s=np.asarray(pair * 60.0 + np.tile(np.linspace(0, 40, per_pair), pairs), dtype=np.float64),
        ok=np.ones(rows, dtype=np.bool_),
        ttft_ms=ttft,
        tpot_ms=tpot,
        turn_ms=ttft + tpot * output,
        prompt_tokens=prompt,
        output_tokens=output,
        computed_tokens=computed,
        batch_kv_tokens=batch,
    )


def sweep(arm: str) -> Sweep:
    rng = np.random.default_rng(ARMS.index(arm))
    context = np.tile([1_024.0, 4_096.0, 16_384.0, 32_768.0, 65_536.0, 120_000.0], 6)
    return Sweep(
        arm=arm,
        pair=np.repeat(np.arange(6), 6),
        users=np.ones(36, dtype=np.int64),
        context_tokens=context,
        itl_ms=INTERCEPTS[arm] + SLOPES[arm] * context + rng.normal(0, 0.06, 36),
        ttft_ms=20 + 0.03 * context + (4e-7 if arm == "bf16" else 5e-7) * context**2 + rng.exponential(15, 36),
        prompt_tokens=context,
        computed_tokens=context,
    )


def evidence(kind: Kind = "measured") -> Evidence:
    return Evidence(
        run="r-2026-11-20-a1",
        kind=kind,
        model=Model(
            name="acme/hybrid-30b", layers=48, full_layers=8, window_layers=40, window_tokens=1024, attention="hybrid", checkpoint="9f3c"
        ),
        deployment=Deployment(
            version="0.33.0",
            gpu=Gpu(name="H100-SXM", sm=90),
            tensor_parallel=1,
            max_model_len=131_072,
            machines=("node-a", "node-b"),
            swapped=True,
            peak_agents=42,
        ),
        reference="bf16",
        arms=(
            Arm(name="bf16", expected_dtype="auto", observed_dtype="bfloat16", kernel="FLASH_ATTN(FA3)", pool_tokens=512_000.0),
            Arm(name="fp8", expected_dtype="fp8_e4m3", observed_dtype="fp8_e4m3", kernel="FLASH_ATTN(FA3)", pool_tokens=1_024_000.0),
            Arm(
                name="fp8-skip-sw",
                expected_dtype="fp8_e4m3",
                observed_dtype="fp8_e4m3",
                kernel="FLASH_ATTN(FA3)",
                skip_layers=("sliding_window",),
                pool_tokens=629_760.0,
            ),
        ),
        workloads=tuple(WorkloadClass(name=name, gpu_time_share=share) for name, share in CLASSES),
        observations=tuple(Observation(workload=name, arm=arm, calls=calls(name, arm)) for name, _ in CLASSES for arm in ARMS),
        server=tuple(
            (arm, Telemetry(pool_filled_share=share, minutes=10.0, preemptions=preempted, hit_rate=hits))
            for arm, share, preempted, hits in (("bf16", 0.9, 31.0, 0.81), ("fp8", 0.4, 2.0, 0.92), ("fp8-skip-sw", 0.8, 12.0, 0.86))
        ),
        sweeps=tuple(sweep(arm) for arm in ARMS),
        capacity=tuple(
            CapacityPoint(arm=arm, agents=agents, turns=240, within_slo=min(240, round(240 * (1.12 - agents / limit * 0.17))), minutes=10.0)
            for arm, limit in (("bf16", 24), ("fp8", 34), ("fp8-skip-sw", 28))
            for agents in (12, 18, 24, 30, 36)
        ),
        accuracy=tuple(
            AccuracyBucket(arm=arm, task="needle", context_tokens=float(length), both=156, reference_only=5, arm_only=3, neither=22)
            for arm in CHALLENGERS
            for length in LENGTHS
        ),
        health=(ClientHealth(send_lag_p99_ms=0.4, stamp_source="kernel", void_blocks=1, blocks=24, foreign_requests=0),),
        aa=(AaControl(workload="code", first=calls("code", "bf16"), second=calls("code", "bf16"), across_machines=True),),
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


def leg(name: Literal["pays", "safe"], state: LegState, each: Estimate | None, reason: str) -> Leg:
    return Leg(name=name, state=state, estimate=each, margin=0.03, p=0.01, p_adjusted=0.02, reason=reason)


def verdict(arm: str, workload: str | None, word: Word) -> ArmVerdict:
    turn = TURN.get((workload, arm))
    relative = None if turn is None else estimate(*turn)
    pays: LegState = "untested" if turn is None else "yes" if turn[0] + turn[1] < 0 else "unclear"
    needs = (
        (Need(what=f"{workload} on {arm}", calls=260, minutes=7.0, command="agentload replay TRACE --endpoints ENDPOINTS --pairs 30"),)
        if word == "test further"
        else ()
    )
    lost = estimate(-0.006, 0.016, unit="share", n=744) if arm == "fp8-skip-sw" else estimate(-0.019, 0.02, unit="share", n=744)
    safe: LegState = "yes" if arm == "fp8-skip-sw" else "no"
    return ArmVerdict(
        arm=arm,
        workload=workload,
        verdict=word,
        canary=workload is None and word == "use",
        pays=leg("pays", pays, relative, "turn time not measured" if relative is None else f"turn time {words.change(relative)}"),
        safe=leg("safe", safe, lost, f"accuracy {words.points(lost)} up to 128k, margin 3 pp"),
        reason=f"{'turns get shorter' if word == 'use' else 'the interval does not clear the margin'} on {workload or 'your mix'}.",
        inequality=Inequality(left=f"turn time, {arm} / bf16", observed=relative, relation="<", right="-3.0 %", holds=word == "use"),
        flips=("the peak rises above 56 agents", "the margin falls below 2.2 pp") if workload is None else (),
        needs=needs,
        untested_share=0.03 if workload is None else None,
    )


def decision(kind: Kind = "measured") -> Decision:
    said: dict[tuple[str, str], Word] = {
        ("code", "fp8"): "calibrate",
        ("code", "fp8-skip-sw"): "use",
        ("long_chat", "fp8"): "calibrate",
        ("long_chat", "fp8-skip-sw"): "use",
        ("rag", "fp8"): "avoid",
        ("rag", "fp8-skip-sw"): "no difference",
        ("multimodal", "fp8"): "test further",
        ("multimodal", "fp8-skip-sw"): "test further",
    }
    classes = tuple(verdict(arm, name, said[name, arm]) for name, _ in CLASSES for arm in CHALLENGERS)
    return Decision(
        run="r-2026-11-20-a1",
        kind=kind,
        model="acme/hybrid-30b",
        gpu="H100-SXM",
        version="0.33.0",
        reference="bf16",
        choice=Choice(
            arm="fp8-skip-sw",
            verdict="use",
            canary=True,
            headline="canary fp8-skip-sw, then roll out",
            runner_up="fp8",
            why_it_lost="calibrate: 4 of 4 buckets fell, the worst by -2.4 pp",
            split_pools="One flag: a bf16 pool for rag would gain at most 0.5 % and leave each pool without a spare.",
        ),
        server=(verdict("fp8", None, "calibrate"), verdict("fp8-skip-sw", None, "use")),
        classes=classes,
        gates=(
            Gate(
                name="compute_floor",
                status="pass",
                arm="fp8",
                message="no prefill is faster than the GPU's peak",
                observed=1.6,
                limit=1.0,
                unit="× floor",
            ),
            Gate(
                name="bandwidth",
                status="pass",
                arm="fp8",
                message="the slope stays under the memory's peak",
                observed=2.77,
                limit=3.35,
                unit="TB/s",
            ),
            Gate(name="dropped_turns", status="not observed", message="no arm said how many turns it dropped", spoils=("turn",)),
        ),
        findings=(
            Finding(
                rule="window_layers",
                kind="supports",
                arm="fp8-skip-sw",
                message="40 of 48 layers attend to 1,024 tokens only; quantising them costs time each step and saves nothing.",
                estimates=(estimate(-0.06, 0.019),),
                inequality=Inequality(
                    left="token latency, skip-SW / FP8", observed=estimate(-0.011, 0.004), relation="<", right="0 %", holds=True
                ),
                flips="a window above 16k tokens",
                source="vLLM blog, 2026-04-22",
                leg="pays",
            ),
            Finding(
                rule="systematic_shift",
                kind="opposes",
                arm="fp8",
                message="Every bucket lost right answers under full FP8.",
                flips="one bucket that gains",
                next_command="agentload calibrate TRACE --model MODEL",
                asks_for="calibrate",
                screening=True,
                leg="safe",
            ),
            Finding(
                rule="published_break_even",
                kind="informs",
                arm="fp8-skip-sw",
                message="Published for another version: 7.7k tokens.",
                prior=True,
            ),
        ),
        skipped=(
            Skipped(rule="speculative_decoding", missing=("acceptance rate",)),
            Skipped(rule="prefix_break", missing=("prefix changes of the trace",)),
        ),
        figures=tuple(
            Figure(name=name, arm=arm, workload=workload, estimate=estimate(value * factor, half, unit=unit), kind=kind)
            for name, value, half, unit in (
                ("ttft_ms.p95", 2_100.0, 180.0, "ms"),
                ("tpot_ms.p50", 8.4, 0.2, "ms"),
                ("output_tokens_per_s", 450.0, 11.0, "tokens/s"),
                ("hit_rate", 0.81, None, "share"),
                ("cost_per_mtok_usd", 1.9, None, "USD"),
            )
            for workload in (None, "code", "long_chat", "rag")
            for arm, factor in (("bf16", 1.0), ("fp8", 0.94), ("fp8-skip-sw", 0.93))
        ),
        changes=tuple(
            Change(
                metric="turn_ms",
                arm=arm,
                workload=workload,
                relative=estimate(value, half),
                pairs=8,
                calls=288,
                floor=0.018,
                by_pair=() if workload is None else tuple(round(float(value + half * wave), 4) for wave in np.sin(np.arange(8) * 2.3)),
                pair_ids=() if workload is None else tuple(range(8)),
            )
            for (workload, arm), (value, half) in TURN.items()
        ),
        itl=tuple(
            ItlLine(
                arm=arm,
                users=1,
                slope_ms_per_token=estimate(SLOPES[arm], 6e-7, unit="ms/token", n=36, method="weighted least squares"),
                intercept_ms=estimate(INTERCEPTS[arm], 0.04, unit="ms", n=36),
                theil_sen_slope=estimate(SLOPES[arm] * 1.01, 8e-7, unit="ms/token", n=36, method="Theil-Sen"),
                lack_of_fit_p=0.4,
                straight=True,
                bandwidth_tb_s=estimate(2.8, 0.1, unit="TB/s", n=36),
                range_tokens=(1_024.0, 120_000.0),
            )
            for arm in ARMS
        ),
        ttft=tuple(
            TtftCurve(
                arm=arm,
                a=estimate(4e-7 if arm == "bf16" else 5e-7, 4e-8, unit="ms/token²", n=36),
                b=estimate(0.03, 0.002, unit="ms/token", n=36),
                c=estimate(35.0, 6.0, unit="ms", n=36),
                range_tokens=(1_024.0, 120_000.0),
            )
            for arm in ARMS
        ),
        break_even=(
            BreakEven(
                arm="fp8-skip-sw",
                shape="bounded",
                tokens=7_010.0,
                low=2_400.0,
                high=10_500.0,
                slope_z=9.0,
                users=6.0,
                own_tokens=1_170.0,
                own_low=400.0,
                own_high=1_750.0,
                prior_tokens=7_659.0,
            ),
            BreakEven(arm="fp8", shape="half-line", tokens=9_800.0, low=None, high=14_000.0, slope_z=8.0, users=6.0),
        ),
        accuracy=tuple(
            BucketResult(
                arm=arm,
                task="needle",
                context_tokens=float(length),
                difference=estimate(base - 0.004 * index, 0.021, unit="share", n=186, method="paired items, Tango score interval"),
                reference=0.9 - 0.02 * index,
                changed_p=0.7,
            )
            for arm, base in (("fp8", -0.012), ("fp8-skip-sw", 0.004))
            for index, length in enumerate(LENGTHS)
        ),
        capacity=(
            Capacity(
                arm="bf16",
                workload=None,
                agents_per_gpu=estimate(24, 1, unit="agents"),
                replicas_at_peak=2,
                next_replica_at_agents=48,
                reason="pool full, 95 % of turns within the SLO",
            ),
            Capacity(
                arm="fp8",
                workload=None,
                agents_per_gpu=estimate(34, 2.5, unit="agents"),
                replicas_at_peak=2,
                next_replica_at_agents=68,
                reason="pool full, 95 % of turns within the SLO",
            ),
            Capacity(
                arm="fp8-skip-sw",
                workload=None,
                agents_per_gpu=estimate(28, 2, unit="agents"),
                replicas_at_peak=2,
                next_replica_at_agents=56,
                reason="pool full, 95 % of turns within the SLO",
            ),
        ),
        needs=tuple(
            Need(
                what=f"paired calls of multimodal on {arm}",
                calls=calls,
                minutes=minutes,
                command=f"agentload replay TRACE --endpoints ENDPOINTS --pairs {pairs}",
            )
            for arm, calls, minutes, pairs in (("fp8", 180, 5.0, 21), ("fp8-skip-sw", 260, 7.0, 30))
        ),
        caveats=("3 % of your calls are longer than anything tested",),
        flips=(
            "the peak rises above 56 agents (calibrate full FP8 first)",
            "the margin falls below 2.2 pp",
            "vLLM, driver or checkpoint changes",
        ),
    )


def facts() -> RunFacts:
    rng = np.random.default_rng(5)
    seconds = tuple(float(second) for second in range(0, 600, 10))
    return RunFacts(
        made=Made(
            run="r-2026-11-20-a1",
            tool_version="0.1.0",
            created="2026-11-20",
            traces=("traces/mix.jsonl",),
            trace_hash="5f2a9c1e",
            seed=7,
            design="interleaved",
            command="agentload replay traces/mix.jsonl --endpoints arms.yaml --model acme/hybrid-30b --db run.duckdb",
            options='{"max_in_flight":64}',
            database="run.duckdb",
            hosts=("load-1",),
            origin="replayed from claude_code import of 480 sessions",
            minutes=204.0,
            servers=tuple(
                Served(arm=arm, machine="node-a, node-b", fingerprint=f"{index}b7e41", steady=True) for index, arm in enumerate(ARMS)
            ),
        ),
        timelines=tuple(
            Timeline(
                arm=arm,
                seconds=seconds,
                kv_usage=tuple(float(min(1.0, second / fill + rng.uniform(-0.02, 0.02))) if second else 0.0 for second in seconds),
                preemptions=tuple(float(max(0.0, (second - fill) // 40)) for second in seconds),
                running=tuple(min(12.0, second // 20) for second in seconds),
            )
            for arm, fill in (("bf16", 120), ("fp8", 420), ("fp8-skip-sw", 200))
        ),
        retrieval=tuple(
            Retrieval(
                arm=arm,
                task="needle",
                context_tokens=float(length),
                depth=depth,
                right=max(0, 20 - column * (2 + (arm == "fp8")) - (depth == 0.5) * column),
                items=20,
            )
            for arm in ARMS
            for column, length in enumerate(LENGTHS)
            for depth in (0.0, 0.25, 0.5, 0.75, 1.0)
        ),
        production=Metrics(
            histograms={
                PROMPT[0]: histogram({10e3: 15, 20e3: 30, 50e3: 42, 100e3: 10, 200e3: 3}, mean=26_000),
                OUTPUT[0]: histogram({100: 5, 200: 20, 500: 30, 1_000: 35, np.inf: 10}, mean=620),
                TTFT[0]: histogram({0.1: 10, 0.25: 45, 0.5: 30, 1.0: 15}, mean=0.28),
            },
            values={QUERIES[0]: 1e9, HITS[0]: 0.71e9, RUNNING[0]: 9.0, KV_USAGE[0]: 0.55},
        ),
    )


def histogram(counts: dict[float, float], *, mean: float) -> Histogram:
    return Histogram(bounds=tuple(counts), counts=tuple(counts.values()), total=mean * sum(counts.values()))


def without_capacity(each: Decision) -> Decision:
    return replace(each, capacity=())
