"""Play a job once: its trace, within its budget, against its endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import Emulated, read
from agentload.errors import AgentloadError, EndpointError
from agentload.experiment.blocks import families
from agentload.experiment.emulated import emulated
from agentload.experiment.load_traces import load_traces
from agentload.experiment.plan import plan
from agentload.experiment.replay import Leg, Played, Replay
from agentload.model.trace import Session, Trace
from agentload.watch.job import Job

PATIENCE_S: Final = 30.0  # what is in flight may end by itself before it is cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a replay went, from the watch's point of view."""

    arms: tuple[str, ...]
    void: str | None
    stopped: str | None
    """Why it did not come to its end."""
    died: str | None
    """The endpoint that stopped answering, in words."""
    load_error: str | None


def play(job: Job, *, run: str, database: Path, notice: Callable[[str], None]) -> Outcome:
    """Replay the job's trace. Raises EndpointError for a dead endpoint."""
    trace, trace_hash = load_traces(job.traces)
    wanted = read(job.endpoints, model=job.model, key_env=job.api_key_env)
    with _served(wanted, run) as reached:
        _check_keys(reached)
        arms = tuple(endpoint.name for endpoint in reached)
        replay = Replay(
            plan=plan(_cut(trace, job, arms), arms, run=run, seed=job.seed, pairs=job.pairs, load=job.load),
            endpoints=reached,
            database=database,
            trace_hash=trace_hash,
            command=f"agentload watch run {job.name}",
            on_dead="stop",
            # A server that is not what the arms file expects is measured all the same: that it changed is what the job is there to tell.
            is_forced=True,
            settings={"traces": job.traces, "pairs": job.pairs, "job": job.name, "budget_calls": job.budget.calls},
        )
        return _watched(replay, job, arms, notice)


def _watched(replay: Replay, job: Job, arms: tuple[str, ...], notice: Callable[[str], None]) -> Outcome:
    said: list[str] = []
    why: list[str] = []

    def heard(text: str) -> None:
        said.append(text)
        notice(text)

    leg = Leg(replay, notice=heard)

    def stop(reason: str) -> None:
        why.append(reason)
        leg.stop()

    async def run() -> Played:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stop, f"stopped by {name.name}")
        limit_s = 60 * job.budget.minutes
        loop.call_later(limit_s, stop, f"time limit of {job.budget.minutes:g} minutes")
        loop.call_later(limit_s + PATIENCE_S, leg.stop)
        return await leg.play()

    try:
        played = asyncio.run(run())
    except BaseExceptionGroup as group:
        raise _first(group) from group
    died = next((text for text in said if "stopped answering" in text), None)
    return Outcome(
        arms=arms,
        void=played.health.void,
        stopped=why[0] if why else None,
        died=died if played.was_stopped and not why else None,
        load_error=played.load_error,
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what the user can mend of what tasks that ran side by side raised, or what they raised first."""
    found: BaseException = group.subgroup(AgentloadError) or group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


@contextlib.contextmanager
def _served(wanted: tuple[Endpoint, ...] | Emulated, run: str) -> Iterator[tuple[Endpoint, ...]]:
    if not isinstance(wanted, Emulated):
        yield wanted
        return
    # Servers are started anew for each run, and scatter anew, as real ones do.
    with emulated(wanted, noise=True, seed=int.from_bytes(hashlib.sha256(run.encode()).digest()[:4], "big")) as served:
        yield served


def _check_keys(endpoints: tuple[Endpoint, ...]) -> None:
    try:
        for endpoint in endpoints:
            endpoint.key()
    except EndpointError as error:  # our side's fault: the endpoint is not dead
        raise AgentloadError(error.message, hint=error.hint) from error


def _cut(trace: Trace, job: Job, arms: tuple[str, ...]) -> Trace:
    """Keep the leading sessions that fit the budget of calls; always the same ones, or runs could not be compared."""
    if job.budget.calls is None:
        return trace
    room = job.budget.calls // len(arms)
    kept: list[Session] = []
    for family in families(trace.sessions):
        turns = sum(len(session.turns) for session in family)
        if turns > room:
            break
        kept += family
        room -= turns
    if not kept:
        raise AgentloadError(
            f"job '{job.name}': budget.calls of {job.budget.calls} on {len(arms)} arms is less than the trace's first session",
            hint="raise budget.calls; agentload trace show prints the turns of sessions",
        )
    return Trace(header=trace.header, sessions=tuple(kept))
