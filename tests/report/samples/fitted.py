"""Lines, curves, buckets and capacities that were fitted to what the sample deployment measured."""

from __future__ import annotations

from advisor.verdict import BreakEven, BucketResult, Capacity, ItlLine, TtftCurve
from tests.report.samples.measured import ARMS, INTERCEPTS, LENGTHS, SLOPES, estimate

ITL = tuple(
    ItlLine(
        arm=arm,
        users=1,
        slope_ms_per_token=estimate(
            SLOPES[arm], 6e-7, unit="ms/token", n=36, method="weighted least squares"
        ),
        intercept_ms=estimate(INTERCEPTS[arm], 0.04, unit="ms", n=36),
        theil_sen_slope=estimate(
            SLOPES[arm] * 1.01, 8e-7, unit="ms/token", n=36, method="Theil-Sen"
        ),
        lack_of_fit_p=0.4,
        straight=True,
        bandwidth_tb_s=estimate(2.8, 0.1, unit="TB/s", n=36),
        range_tokens=(1_024.0, 120_000.0),
    )
    for arm in ARMS
)
TTFT = tuple(
    TtftCurve(
        arm=arm,
        a=estimate(4e-7 if arm == "bf16" else 5e-7, 4e-8, unit="ms/token²", n=36),
        b=estimate(0.03, 0.002, unit="ms/token", n=36),
        c=estimate(35.0, 6.0, unit="ms", n=36),
        range_tokens=(1_024.0, 120_000.0),
    )
    for arm in ARMS
)
BREAK_EVEN = (
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
    BreakEven(
        arm="fp8",
        shape="half-line",
        tokens=9_800.0,
        low=None,
        high=14_000.0,
        slope_z=8.0,
        users=6.0,
    ),
)
ACCURACY = tuple(
    BucketResult(
        arm=arm,
        task="needle",
        context_tokens=float(length),
        difference=estimate(
            base - 0.004 * index,
            0.021,
            unit="share",
            n=186,
            method="paired items, Tango score interval",
        ),
        reference=0.9 - 0.02 * index,
        changed_p=0.7,
    )
    for arm, base in (("fp8", -0.012), ("fp8-skip-sw", 0.004))
    for index, length in enumerate(LENGTHS)
)
CAPACITY = (
    Capacity(
        arm="bf16",
        workload=None,
        agents_per_gpu=estimate(24, 1, unit="agents"),
        replicas_at_peak=2,
        gpus_at_peak=estimate(2, 0, unit="GPUs"),
        next_replica_at_agents=48,
        reason="pool full, 95% of turns within the SLO",
    ),
    Capacity(
        arm="fp8",
        workload=None,
        agents_per_gpu=estimate(34, 2.5, unit="agents"),
        replicas_at_peak=2,
        gpus_at_peak=estimate(2, 0, unit="GPUs"),
        next_replica_at_agents=68,
        reason="pool full, 95% of turns within the SLO",
    ),
    Capacity(
        arm="fp8-skip-sw",
        workload=None,
        agents_per_gpu=estimate(28, 2, unit="agents"),
        replicas_at_peak=2,
        gpus_at_peak=estimate(2, 0, unit="GPUs"),
        next_replica_at_agents=56,
        reason="pool full, 95% of turns within the SLO",
    ),
)
