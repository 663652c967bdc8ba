"""Fit twins to step times on cached prefixes, and judge them on workloads that they have not seen.

An arm of a profile plays the grid of `agentload.layout.step_times` with noise, three times; a
twin is fitted to those calls and to nothing of the profile's step times. Then engine and twin
play the same draws of sessions of each workload: the number of sessions at which the 95th
percentile of TTFT meets a limit, and there the time per output token (median) and the
throughput. Profiles marked `*` are played by engines that the fit does not know: their steps
are as long as those of the next captured batch, and 2% longer for each doubling of it. Both
play the same draws, so what is compared is the twin and not its luck. A start that is off
moves both alike and is left out. Exits with 1 beyond 1% (time per token), 2.5% (throughput)
and 10% (load, at 20 sessions or more) on engines of the fit's own form. `python -m
benchmarks.twin [--profiles a,b] [--arms fp8] [--traces chat,short_chat] [--limit-ms 2000]`
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias
from unittest import mock

import numpy as np

from agentload.emulator import stepper
from agentload.emulator.fit import Observed, fit
from agentload.emulator.steptime import StepClock
from agentload.kvmath.pool import pool_of
from agentload.layout.plan import Scheme, plan
from agentload.layout.steady import steady
from agentload.layout.step_times import Bounds, grid, step_times
from agentload.layout.windows import windows
from agentload.model import metrics
from agentload.model.plan import Budget, ClosedLoop, Load
from agentload.model.profile import ArmProfile, Noise
from agentload.model.rows import CallRow
from agentload.model.trace import Trace
from agentload.run.files import read_traces
from agentload.run.servers import arms_of
from agentload.study.parts import TraceRef
from agentload.virtual.shell import Shell

REPEATS = 3
SECONDS = 600.0
DRAWS = 2
MOST = 512
"""Sessions that are tried; an engine that carries them all has no load to compare."""
CAPTURED = (1, 2, 4, *range(8, 513, 8))
DOUBLING = 0.02
Off: TypeAlias = dict[str, float]
PROMISED: Off = {"time per token": 0.01, "throughput": 0.025, "load": 0.10}


class Padded(StepClock):
    """Steps as long as those of the next captured batch,
    and longer than the form that is fitted has it.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("base_ps", "per_token_ps"):
            own = getattr(self, name)
            padded = [
                next(each for each in CAPTURED if each >= size) for size in range(1, len(own))
            ]
            known = (
                [own[min(size, len(own) - 1)] for size in padded] if name == "base_ps" else own[1:]
            )
            object.__setattr__(
                self,
                name,
                (
                    0,
                    *(
                        round(ps * (1 + DOUBLING * math.log2(size + 1)))
                        for size, ps in enumerate(known)
                    ),
                ),
            )


@contextmanager
def engines(clock: type[StepClock]) -> Iterator[None]:
    """Let engines have another clock."""
    with mock.patch.object(stepper, "StepClock", clock):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of some draws of sessions."""

    tpot_ms: float
    tokens_per_s: float
    within: float


def observed(rows: list[CallRow]) -> Observed:
    """Return calls as a fit takes them."""
    rows = sorted(
        (row for row in rows if row.status == "ok" and row.chunks is not None),
        key=lambda row: row.sent_ns or 0,
    )
    return Observed(
        sent_ns=np.array([row.sent_ns for row in rows], dtype=np.int64),
        prompt_tokens=np.array([row.prompt_tokens for row in rows], dtype=np.int64),
        cached_tokens=np.array([row.cached_tokens for row in rows], dtype=np.int64),
        output_tokens=np.array([row.output_tokens for row in rows], dtype=np.int64),
        stamps_ns=[
            np.array(row.chunks.ns(), dtype=np.int64) for row in rows if row.chunks is not None
        ],
    )


def twin_of(arm: ArmProfile, clock: type[StepClock]) -> ArmProfile:
    """Fit the twin of an arm."""
    bounds = Bounds(
        window=arm.server.max_model_len,
        pool_tokens=pool_of(arm).tokens,
        sequences=arm.server.max_num_seqs,
        longest=arm.server.max_model_len,
    )
    trace = step_times(grid(bounds), seed=0)
    sessions = sum(1 for _ in trace.sessions)
    made = plan(
        trace,
        [arm.name],
        run="grid",
        scheme=Scheme(pairs=REPEATS, blocks=1),
        load=Load(arrivals=ClosedLoop(sessions=sessions)),
    )
    with engines(clock):
        rows = [
            row for row in Shell(made, {arm.name: arm}, seed=11).play() if isinstance(row, CallRow)
        ]
    found = fit(
        observed(rows),
        weights_ms=None,
        experts=arm.model.experts,
        budget=arm.server.max_num_batched_tokens,
    )
    return replace(arm, step=found.step, noise=Noise())


def seen(
    arm: ArmProfile, clock: type[StepClock], trace: Trace, sessions: int, limit_ms: float
) -> Seen:
    """Play draws of sessions, the same ones whatever the arm."""
    load = Load(arrivals=ClosedLoop(sessions=sessions), budget=Budget(seconds=SECONDS))
    tpot: list[float] = []
    ttft: list[float] = []
    tokens = 0
    for seed in range(DRAWS):
        laid = windows(steady(trace, load), number=1, pairs=1, seed=seed)
        made = plan(
            trace,
            [arm.name],
            run=f"judge-{sessions}",
            seed=seed,
            scheme=Scheme(pairs=1),
            load=laid.load,
            laid=laid.blocks,
        )
        with engines(clock):
            for row in Shell(made, {arm.name: arm}, seed=seed).play():
                if not isinstance(row, CallRow) or row.prime or row.status != "ok":
                    continue
                tokens += row.output_tokens or 0
                ttft.append(metrics.ttft_ms(row, row.released_ns) or 0.0)
                if (each := metrics.tpot_ms(row)) is not None:
                    tpot.append(each)
    within = sum(each <= limit_ms for each in ttft) / len(ttft)
    return Seen(
        tpot_ms=statistics.median(tpot), tokens_per_s=tokens / SECONDS / DRAWS, within=within
    )


def carried(
    arm: ArmProfile,
    clock: type[StepClock],
    trace: Trace,
    limit_ms: float,
    *,
    near: float | None = None,
) -> float:
    """Return the number of sessions, between two that were played, at
    which the p95 of TTFT meets the limit; *near* where one is known.
    """
    shares: dict[int, float] = {}

    def share(sessions: int) -> float:
        if sessions not in shares:
            shares[sessions] = seen(arm, clock, trace, sessions, limit_ms).within
        return shares[sessions]

    low, high = (
        (1, 2) if near is None else (max(1, math.floor(0.93 * near)), math.ceil(1.07 * near))
    )
    if share(low) < 0.95:
        low, high = 1, 2
    while share(high) >= 0.95:
        if high >= MOST:
            return MOST
        low, high = high, high * 2
    while high - low > max(1, low // 32):
        middle = (low + high) // 2
        low, high = (middle, high) if share(middle) >= 0.95 else (low, middle)
    return low + (high - low) * min(1.0, (share(low) - 0.95) / max(1e-9, share(low) - share(high)))


def judged(
    arm: ArmProfile, clock: type[StepClock], traces: Mapping[str, Trace], limit_ms: float
) -> Iterator[tuple[str, Off, float]]:
    """Yield, by trace, by how much the twin is off, and the load that the engine carries."""
    arm = replace(arm, noise=replace(arm.noise, restart_sigma=0.0, drift_per_hour=0.0))
    twin = twin_of(arm, clock)
    for name, trace in traces.items():
        carries = carried(arm, clock, trace, limit_ms)
        sessions = max(1, math.floor(carries))
        truth, told = (
            seen(arm, clock, trace, sessions, limit_ms),
            seen(twin, StepClock, trace, sessions, limit_ms),
        )
        off = {
            "time per token": told.tpot_ms / truth.tpot_ms - 1,
            "throughput": told.tokens_per_s / truth.tokens_per_s - 1,
            "load": carried(twin, StepClock, trace, limit_ms, near=carries) / carries - 1,
        }
        yield name, off, carries


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--profiles",
        default="llama-3.1-8b-h100,gpt-oss-20b-h100,llama-3.1-8b-h100*,gpt-oss-20b-h100*",
    )
    parser.add_argument("--arms", default="bf16,fp8")
    parser.add_argument("--traces", default="chat,short_chat")
    parser.add_argument("--limit-ms", type=float, default=2000.0)
    asked = parser.parse_args()
    traces = {name: read_traces((TraceRef(path=name),))[0] for name in asked.traces.split(",")}
    print(
        f"{'engine':<28} {'arm':<12} {'trace':<10} {'time/token':>10} {'throughput':>10} "
        f"{'load':>7}  carries"
    )
    wrong = []
    for name in asked.profiles.split(","):
        clock = Padded if name.endswith("*") else StepClock
        for arm in arms_of(name.removesuffix("*"), asked.arms.split(",")):
            for trace, off, carries in judged(arm, clock, traces, asked.limit_ms):
                row = (
                    f"{off['time per token']:+.1%}",
                    f"{off['throughput']:+.1%}",
                    f"{off['load']:+.1%}",
                )
                told = f"{carries:.1f}" if carries < MOST else f"{MOST} and more"
                print(
                    f"{name:<28} {arm.name:<12} {trace:<10} {row[0]:>10} {row[1]:>10} "
                    f"{row[2]:>7}  {told}",
                    flush=True,
                )
                missed = [
                    what
                    for what, most in PROMISED.items()
                    if abs(off[what]) > most and (what != "load" or carries >= 20)
                ]
                wrong += [
                    f"{name} {arm.name} {trace}: {what}" for what in missed if clock is StepClock
                ]
    sys.exit("; ".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
