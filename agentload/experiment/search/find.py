"""Try loads on an emulated arm until the one that just holds is found."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from agentload.errors import UsageError
from agentload.evidence.capacity import PROBE
from agentload.experiment.layout.endless import Primed, Repeated
from agentload.experiment.layout.plan import plan
from agentload.experiment.search.capacity import Found, Limits, Trial, search
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop
from agentload.model.profile import ArmProfile
from agentload.model.rows import CallRow, ProbeRow, SampleRow
from agentload.model.trace import Trace
from agentload.virtual.shell import Shell

What: TypeAlias = Literal["max-concurrency", "max-rate"]
FASTEST_TOKEN_S = 0.002  # no deployment that is known decodes a sequence faster
START: dict[What, float] = {"max-concurrency": 8, "max-rate": 0.5}


def find(what: What, trace: Trace, arm: ArmProfile, *, limits: Limits, load: Load, seconds: float, seed: int) -> Found:
    """Return the largest number of sessions, or of session starts a second, that *arm* carries within *limits*.

    Each load is played for *seconds* of virtual time, the first quarter of which is left out: caches fill, queues build up. The first
    sessions of a closed loop begin in the middle: while all are young, the pool holds several times as many as later on.
    """
    if limits == Limits(share=limits.share):
        raise UsageError("a search needs a limit to hold", hint="--slo ttft=2000,tpot=50")

    sessions, shortest_s = _shape(trace, load)
    starts_per_s = 1 / shortest_s if what == "max-concurrency" else 1.0

    def attempt(size: float) -> Trial:
        arrivals = ClosedLoop(sessions=round(size)) if what == "max-concurrency" else OpenLoop(rate_per_s=size)
        played = replace(load, arrivals=arrivals, budget=Budget(seconds=seconds))
        enough = math.ceil(size * (1 + starts_per_s * seconds) / sessions) + 1
        primed = round(size) if what == "max-concurrency" else 0
        repeated = Trace(header=trace.header, sessions=Repeated(trace, enough))
        begun = Trace(header=trace.header, sessions=Primed(repeated, primed, seed))
        made = plan(begun, [arm.name], run=f"find-{size:g}", seed=seed, pairs=1, load=played)
        return _trial(size, Shell(made, {arm.name: arm}, seed=seed, sample_s=max(1.0, seconds / 60)), limits, seconds)

    return search(arm.name, attempt, share=limits.share, start=START[what], whole=what == "max-concurrency")


def rows(found: Found, *, run_id: str, seconds: float, slo: str, workload: str | None = None) -> Iterator[ProbeRow]:
    """Return the steps of a search for concurrency as rows beside a run; *workload* where the sessions were of one class."""
    for position, trial in enumerate(found.trials):
        detail = {
            "turns": trial.turns,
            "within": trial.within,
            "minutes": seconds / 60,
            "preemptions": trial.preemptions,
            "peak_kv_usage": trial.peak_kv_usage,
            "hit_rate": trial.hit_rate,
            "output_tokens_per_s": trial.output_tokens_per_s,
            "held": found.holds is not None and trial.load <= found.holds,
        }
        settings = json.dumps({"agents": round(trial.load), "slo": slo, "workload": workload}, sort_keys=True)
        yield ProbeRow(
            run_id=run_id,
            arm=found.arm,
            probe=PROBE,
            at_ns=position,
            settings=settings,
            outcome="died" if trial.died else "ok",
            detail=json.dumps(detail, sort_keys=True),
        )


def _shape(trace: Trace, load: Load) -> tuple[int, float]:
    """Return how many sessions a trace has, and the least time that an average one takes."""
    count, total_s = 0, 0.0
    for session in trace.sessions:
        count += 1
        for turn in session.turns:
            rule = load.waits.get(turn.wait or "")
            wait_s = turn.wait_s * (rule.scale if rule else 1.0)
            total_s += min(wait_s, rule.cap_s) if rule and rule.cap_s is not None else wait_s
            total_s += turn.output * FASTEST_TOKEN_S
    return max(1, count), max(FASTEST_TOKEN_S, total_s / max(1, count))


def _trial(size: float, shell: Shell, limits: Limits, seconds: float) -> Trial:
    from_ns = round(seconds / 4 * 1e9)
    turns = within = tokens = prompt = cached = preemptions = 0
    usage = 0.0
    for row in shell.play():
        if isinstance(row, SampleRow):
            usage = max(usage, row.value) if row.name == "kv_usage" else usage
            preemptions = round(row.value) if row.name == "preemptions" else preemptions
        elif isinstance(row, CallRow) and row.released_ns >= from_ns and not row.prime:
            turns += 1
            within += limits.holds(row)
            tokens += row.output_tokens or 0
            prompt += row.prompt_tokens or 0
            cached += row.cached_tokens or 0
    return Trial(
        load=size,
        turns=turns,
        within=within,
        preemptions=preemptions,
        peak_kv_usage=usage,
        hit_rate=cached / prompt if prompt else None,
        output_tokens_per_s=tokens / (0.75 * seconds),
    )
