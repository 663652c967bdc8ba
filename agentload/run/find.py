"""Try loads on an emulated arm until the one that just holds is found."""

from __future__ import annotations

import math
from dataclasses import replace

from agentload.layout.long_run import Primed, Repeated
from agentload.layout.plan import plan
from agentload.model.metrics import clock_start
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop
from agentload.model.profile import ArmProfile
from agentload.model.trace import Trace
from agentload.run.capacity import Found, search
from agentload.run.trial import Limits, Tally, Trial, broken_level
from agentload.study.kinds import Search, What
from agentload.virtual.shell import Shell

FASTEST_TOKEN_S = 0.002  # no deployment that is known decodes a sequence faster
START: dict[What, float] = {"max-concurrency": 8, "max-rate": 0.5}


def find(study: Search, trace: Trace, arm: ArmProfile) -> Found:
    """Return the largest number of sessions, or of session starts a second, that *arm* carries within the service level.

    Each load is played for a trial of virtual time, the first quarter of which is left out: caches fill, queues build up. The first
    sessions of a closed loop begin in the middle: while all are young, the pool holds several times as many as later on.
    """
    what, seconds, seed, load, limits = study.find, study.trial_s, study.seed, study.load.planned(), Limits.of(study.slo, study.share)
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
        tally = Tally(limits, begun_ns=0, seconds=seconds, start=clock_start(played))
        for row in Shell(made, {arm.name: arm}, seed=seed, sample_s=max(1.0, seconds / 60)).play():
            tally.add(row)
        trial = tally.trial(size)
        return replace(trial, trouble=broken_level(trial, limits.share))

    return search(arm.name, attempt, start=START[what], whole=what == "max-concurrency")


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
