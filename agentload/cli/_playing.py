"""Play a replay in the foreground: progress drawn, Ctrl-C heeded."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from agentload.cli._progress import Progress
from agentload.cli._signals import heard
from agentload.errors import InterruptError, StoreError
from agentload.layout.cost import Cost, cost
from agentload.model.metrics import clock_start
from agentload.run.past import Past, past
from agentload.run.play import Leg, Played, Replay
from agentload.run.record import resume_command
from agentload.run.stages import Stage, exchanged, is_over, stages


def played(replay: Replay, expected: Cost) -> Played:
    """Play one leg, and draw how far it is. A first Ctrl-C lets what is in flight come to its end, a second cancels it."""
    progress = Progress(expected, start=clock_start(replay.plan.load))
    leg = Leg(replay, listener=progress, notice=_notice)

    async def play() -> Played:
        with heard(leg.stop):
            return await leg.play()

    with progress.shown():
        try:
            return asyncio.run(play())
        except asyncio.CancelledError as stopped:
            if not replay.is_resumed:
                raise InterruptError("stopped before anything was sent") from stopped
            raise InterruptError(
                "stopped before anything more was sent", hint=f"go on with: {resume_command(replay.plan.run)}"
            ) from stopped


def played_in_stages(replay: Replay) -> Played:
    """Play a replay, a leg for each stretch in which no arm moves; what was played before a resumption is not played again."""
    steps = stages(replay.plan, replay.endpoints)
    everything = frozenset[int]().union(*(step.pairs for step in steps))
    ended: Played | None = None
    for number, step in enumerate(steps):
        before = past(replay.database, replay.plan)
        if is_over(steps, number, before):
            continue
        if step.taken_from:
            _wait_for(step, before, replay.plan.run)
        leg = replace(
            replay, endpoints=step.endpoints, elsewhere=everything - step.pairs, is_resumed=replay.is_resumed or ended is not None
        )
        leg_ended = played(leg, cost(replace(replay.plan, rounds=step.left(before))))
        # What voids the first half voids the comparison.
        ended = leg_ended if ended is None or ended.health.void is None else replace(leg_ended, health=ended.health)
        if ended.was_stopped:
            break
    assert ended is not None, "a plan has rounds"
    return ended


def warned(ended: Played) -> None:
    """Say on standard error what makes the timings of a leg void."""
    if ended.health.void is not None:
        _notice(f"warning: timings are void: {ended.health.void}")


def concluded(run_id: str, db: Path, *, load_error: str | None, stopped: InterruptError | None = None) -> None:
    """Raise what a verb ends with: that it was stopped, or that the database lacks what is in the journal."""
    if load_error is not None:
        lacking = f"run {run_id} is in its journal but not in {db}: {load_error}"
        remedy = f"agentload runs load {run_id} --db {db}"
        if stopped is None:
            raise StoreError(lacking, hint=remedy)
        _notice(f"warning: {lacking}")
        _notice(f"hint: {remedy}")
    if stopped is not None:
        raise stopped


def _wait_for(step: Stage, before: Past, run_id: str) -> None:
    try:
        asyncio.run(exchanged(step, before.facts, notice=_notice, run_id=run_id))
    except KeyboardInterrupt as stopped:
        raise InterruptError(
            "stopped before the servers were exchanged; the first half is stored", hint=f"exchange them, then: {resume_command(run_id)}"
        ) from stopped


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
