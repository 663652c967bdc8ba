"""What is told of the sample run beside its figures: how it was made, its servers, production."""

from __future__ import annotations

import numpy as np

from agentload.exposition.scrape import Histogram, Scrape
from agentload.report.parts import Made, Retrieval, RunFacts, Served, Timeline
from tests.report.samples.measured import ARMS, LENGTHS
from tests.study.studies import of_command

COMMAND = (
    "agentload replay traces/mix.jsonl --endpoints arms.yaml --model acme/hybrid-30b --db "
    "run.duckdb"
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
            command=COMMAND,
            options='{"max_in_flight":64}',
            database="run.duckdb",
            hosts=("load-1",),
            origin="replayed from claude_code import of 480 sessions",
            minutes=204.0,
            servers=tuple(
                Served(arm=arm, machine="node-a, node-b", fingerprint=f"{index}b7e41", steady=True)
                for index, arm in enumerate(ARMS)
            ),
        ),
        study=of_command(COMMAND),
        timelines=tuple(
            Timeline(
                arm=arm,
                seconds=seconds,
                kv_usage=tuple(
                    float(min(1.0, second / fill + rng.uniform(-0.02, 0.02))) if second else 0.0
                    for second in seconds
                ),
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
        production=Scrape(
            histograms={
                "prompt_tokens": histogram(
                    {10e3: 15, 20e3: 30, 50e3: 42, 100e3: 10, 200e3: 3}, mean=26_000
                ),
                "output_tokens": histogram(
                    {100: 5, 200: 20, 500: 30, 1_000: 35, np.inf: 10}, mean=620
                ),
                "ttft_s": histogram({0.1: 10, 0.25: 45, 0.5: 30, 1.0: 15}, mean=0.28),
            },
            values={"prefix_queries": 1e9, "prefix_hits": 0.71e9, "running": 9.0, "kv_usage": 0.55},
        ),
    )


def histogram(counts: dict[float, float], *, mean: float) -> Histogram:
    return Histogram(
        bounds=tuple(counts), counts=tuple(counts.values()), total=mean * sum(counts.values())
    )
