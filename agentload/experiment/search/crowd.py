"""Let ever more sessions run side by side on a live endpoint, until it is in trouble: preemptions, a queue, failures, a broken limit."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.experiment.layout.endless import Primed, Repeated
from agentload.experiment.layout.plan import plan
from agentload.experiment.legs.record import new_run_id
from agentload.experiment.legs.replay import Leg, Replay
from agentload.experiment.search.capacity import Found, Limits, Trial, search
from agentload.model.plan import Budget, ClosedLoop, Load, WaitScale
from agentload.model.rows import CallRow, SampleRow
from agentload.model.trace import Trace
from agentload.store import journal
from agentload.store.places import journals

QUEUED: Final = 0.25  # of the samples with requests waiting: a single one may be between two steps
FASTEST_SESSION_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What every trial of a search has in common."""

    trace: Trace
    limits: Limits
    seconds: float
    seed: int
    command: str
    is_forced: bool = False
    waits: Mapping[str, WaitScale] = field(default_factory=dict)

    def search(self, arm: Endpoint, *, start: int, told: Callable[[str], None], up: Callable[[], bool] = lambda: False) -> Found:
        """Bracket the number of sessions that *arm* carries; each trial is told when it is over.

        *up* brings a server of ours up before each trial, and tells whether it had died.
        """

        def attempt(size: float) -> Trial:
            up()
            trial = self._trial(arm, round(size))
            if up():
                trial = replace(trial, died=True)
                told(f"{arm.name}: the server died of {size:.0f} sessions and was started again")
            held = f"{trial.share:.0%} of {trial.turns} turns hold"
            told(f"{arm.name}: {size:.0f} sessions: {held}, {trial.preemptions} preemptions, waiting {trial.waiting_share:.0%} of the time")
            if trial.void is not None:
                told(f"warning: {arm.name}: at {size:.0f} sessions it may be our own side that broke: {trial.void}")
            return trial

        return search(arm.name, attempt, share=self.limits.share, start=start, whole=True, is_trouble=is_trouble)

    def _trial(self, arm: Endpoint, sessions: int) -> Trial:
        given = sum(1 for _ in self.trace.sessions)
        rounds = math.ceil(sessions * (1 + self.seconds / FASTEST_SESSION_S) / max(1, given))
        repeated = Trace(header=self.trace.header, sessions=Repeated(self.trace, rounds))
        made = plan(
            Trace(header=self.trace.header, sessions=Primed(repeated, sessions, self.seed)),
            [arm.name],
            run=new_run_id(),
            seed=self.seed,
            pairs=1,
            load=Load(arrivals=ClosedLoop(sessions=sessions), waits=self.waits, budget=Budget(seconds=self.seconds)),
        )
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / "trial.duckdb"
            replay = Replay(
                plan=made,
                endpoints=(arm,),
                database=scratch,
                trace_hash="",
                command=self.command,
                on_dead="skip",
                is_forced=self.is_forced,
                sample_s=max(0.5, min(5.0, self.seconds / 30)),
            )
            try:
                played = asyncio.run(Leg(replay).play())
            except EndpointError as error:
                raise EndpointError(f"{error.message} (after {sessions} sessions at once)", hint=error.hint) from error
            rows = [row for path in journals(scratch, made.run) for row in journal.read(path)]
        calls = [row for row in rows if isinstance(row, CallRow) and row.status != "stopped" and not row.prime]
        trial = _trial(sessions, calls, [row for row in rows if isinstance(row, SampleRow)], self.limits, self.seconds)
        return replace(trial, void=played.health.void)


def is_trouble(trial: Trial) -> bool:
    """Tell whether the server died, preempted or queued, or answered nothing at all."""
    return trial.died or trial.turns == 0 or trial.preemptions > 0 or trial.waiting_share > QUEUED


def _trial(sessions: int, calls: list[CallRow], samples: list[SampleRow], limits: Limits, seconds: float) -> Trial:
    # The first quarter fills caches and builds queues up.
    begun_ns = min((row.released_ns for row in calls), default=0) + round(seconds / 4 * 1e9)
    kept = [row for row in calls if row.released_ns >= begun_ns]
    told = {name: [row.value for row in samples if row.name == name] for name in ("preemptions", "waiting", "kv_usage")}
    waiting = [row.value for row in samples if row.name == "waiting" and row.at_ns >= begun_ns]
    prompt = sum(row.prompt_tokens or 0 for row in kept)
    return Trial(
        load=sessions,
        turns=len(kept),
        within=sum(limits.holds(row) for row in kept),
        preemptions=round(max(told["preemptions"]) - min(told["preemptions"])) if told["preemptions"] else 0,
        peak_kv_usage=max(told["kv_usage"], default=0.0),
        hit_rate=sum(row.cached_tokens or 0 for row in kept) / prompt if prompt else None,
        output_tokens_per_s=sum(row.output_tokens or 0 for row in kept) / (0.75 * seconds),
        waiting_share=sum(value > 0 for value in waiting) / len(waiting) if waiting else 0.0,
    )
