"""What was decided of the sample deployment: verdicts, figures, findings, gates."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from advisor import words
from advisor.estimate import Estimate
from advisor.evidence import Kind
from advisor.steps import Calibrate, MorePairs
from advisor.verdict import (
    ArmVerdict,
    Change,
    Choice,
    Decision,
    Figure,
    Finding,
    Gate,
    Inequality,
    Leg,
    LegState,
    Need,
    QuestionsAsked,
    Skipped,
    Word,
)
from tests.report.samples import fitted
from tests.report.samples.measured import (
    CHALLENGERS,
    CLASSES,
    PAIR_LOAD,
    TURN,
    TWIN_CHANGES,
    estimate,
)
from tests.report.samples.tasks import CLIFF, TASKS

SCALES = Need(
    what="calibrate the scales of fp8 on prompts of the trace, then ask it the same questions",
    step=Calibrate(),
)


ANSWERS = QuestionsAsked(
    questions=744, lengths=(8_192.0, 32_768.0, 65_536.0, 131_072.0), reference=0.866
)


def leg(name: Literal["pays", "safe"], state: LegState, each: Estimate | None, reason: str) -> Leg:
    return Leg(name=name, state=state, estimate=each, margin=0.03, p=0.01, reason=reason)


def verdict(arm: str, workload: str | None, word: Word) -> ArmVerdict:
    turn = TURN.get((workload, arm))
    relative = None if turn is None else estimate(*turn)
    pays: LegState = "untested" if turn is None else "yes" if turn[0] + turn[1] < 0 else "unclear"
    needs: tuple[Need, ...] = ()
    if word == "test further":
        needs = (
            Need(what=f"{workload} on {arm}", calls=260, minutes=7.0, step=MorePairs(pairs=30)),
        )
    elif word == "calibrate":
        needs = (SCALES,)
    lost = (
        estimate(-0.006, 0.016, unit="share", n=744)
        if arm == "fp8-skip-sw"
        else estimate(-0.019, 0.02, unit="share", n=744)
    )
    safe: LegState = "yes" if arm == "fp8-skip-sw" else "no"
    return ArmVerdict(
        arm=arm,
        workload=workload,
        verdict=word,
        canary=workload is None and word == "use",
        pays=leg(
            "pays",
            pays,
            relative,
            "turn time not measured" if relative is None else f"turn time {words.change(relative)}",
        ),
        safe=replace(
            leg("safe", safe, lost, f"accuracy {words.points(lost)} up to 128k, margin 3 pp"),
            answers=ANSWERS,
        ),
        reason=f"{'turns get shorter' if word == 'use' else 'the interval does not clear the margin'} "
        f"on {workload or 'your mix'}.",
        inequality=Inequality(
            left=f"turn time, {arm} / bf16",
            observed=relative,
            relation="<",
            right="-3.0%",
            holds=word == "use",
        ),
        flips=("a peak above 56 agents", "an accuracy margin below 2.2 pp")
        if workload is None
        else (),
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
    classes = tuple(
        verdict(arm, name, said[name, arm]) for name, _ in CLASSES for arm in CHALLENGERS
    )
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
            split_pools="One flag: a bf16 pool for rag would gain at most "
            "0.5% and leave each pool "
            "without a spare.",
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
            Gate(
                name="dropped_turns",
                status="not observed",
                message="no arm said how many turns it dropped",
                spoils=("turn",),
            ),
        ),
        findings=(
            Finding(
                rule="window_layers",
                kind="supports",
                arm="fp8-skip-sw",
                message="40 of 48 layers attend to 1,024 tokens only; quantising them costs time "
                "each step and saves nothing.",
                estimates=(estimate(-0.06, 0.019),),
                inequality=Inequality(
                    left="token latency, skip-SW / FP8",
                    observed=estimate(-0.011, 0.004),
                    relation="<",
                    right="0%",
                    holds=True,
                ),
                flips="a window above 16k tokens",
                source="vLLM blog, 2026-04-22",
                leg="pays",
            ),
            Finding(
                rule="systematic_shift",
                kind="opposes",
                arm="fp8",
                message="Every bucket lost accuracy under full FP8.",
                flips="one bucket that gains",
                next_step=Calibrate(),
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
        skipped=(Skipped(rule="speculative_decoding", missing=("acceptance rate",)),),
        figures=tuple(
            Figure(
                name=name,
                arm=arm,
                workload=workload,
                estimate=estimate(value * factor, half, unit=unit),
                kind=kind,
            )
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
                by_pair=()
                if workload is None
                else tuple(
                    round(float(value + half * wave), 4) for wave in np.sin(np.arange(8) * 2.3)
                ),
                pair_ids=() if workload is None else tuple(range(8)),
            )
            for (workload, arm), (value, half) in TURN.items()
        ),
        tasks=TASKS,
        hit_cliffs=(CLIFF,),
        pair_load=PAIR_LOAD,
        twin_changes=TWIN_CHANGES,
        itl=fitted.ITL,
        ttft=fitted.TTFT,
        break_even=fitted.BREAK_EVEN,
        accuracy=fitted.ACCURACY,
        capacity=fitted.CAPACITY,
        needs=(
            SCALES,
            *(
                Need(
                    what=f"paired calls of multimodal on {arm}",
                    calls=calls,
                    minutes=minutes,
                    step=MorePairs(pairs=pairs),
                )
                for arm, calls, minutes, pairs in (
                    ("fp8", 180, 5.0, 21),
                    ("fp8-skip-sw", 260, 7.0, 30),
                )
            ),
        ),
        caveats=("3% of your calls are longer than anything tested",),
        flips=(
            "the peak rises above 56 agents (calibrate full FP8 first)",
            "the margin falls below 2.2 pp",
            "vLLM, driver or checkpoint changes",
        ),
    )


def without_capacity(each: Decision) -> Decision:
    return replace(each, capacity=())
