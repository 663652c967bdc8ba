"""Play a job once: its trace, within its budget, against its endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import Emulated, read
from agentload.errors import AgentloadError, EndpointError, first_of
from agentload.layout.cost import cost
from agentload.layout.plan import plan
from agentload.model.controls import copied
from agentload.run.play import Leg, Played, Replay
from agentload.run.servers import emulated, with_control
from agentload.run.traces import load_traces
from agentload.watch.job import Job
from agentload.watch.limits import HOUR_S, Limit, cut, limit, usd_per_hour

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
    usd: float | None
    """What the servers cost meanwhile."""


def play(job: Job, *, run: str, database: Path, is_controlled: bool, notice: Callable[[str], None]) -> Outcome:
    """Replay the job's trace, where wanted with an A/A control of every arm. Raises EndpointError for a dead endpoint."""
    trace, trace_hash = load_traces(job.traces, within=job.folder)
    with _ours():
        wanted = read(job.endpoints, model=job.model, key_env=job.api_key_env)
    with _served(wanted, run) as reached:
        with _ours():
            for endpoint in reached:
                endpoint.key()
        price = usd_per_hour(job, reached)
        bound = limit(job, price, is_controlled=is_controlled)
        arms = tuple(endpoint.name for endpoint in reached)
        trace = cut(trace, job, len(arms))
        played = _controlled(reached) if is_controlled else reached
        made = plan(trace, tuple(endpoint.name for endpoint in played), run=run, seed=job.seed, pairs=job.pairs, load=job.load)
        settings = {"traces": job.traces, "pairs": job.pairs, "job": job.name, "budget_calls": job.budget.calls}
        replay = Replay(
            plan=made,
            endpoints=played,
            database=database,
            trace_hash=trace_hash,
            command=f"agentload watch run {job.name}",
            on_dead="stop",
            # A server that is not what the arms file expects is measured all the same: that it changed is what the job is there to tell.
            is_forced=True,
            settings={**settings, "calls": cost(made).calls_by_arm},
        )
        return _watched(replay, arms, bound, price, notice)


def _watched(replay: Replay, arms: tuple[str, ...], bound: Limit, price: float | None, notice: Callable[[str], None]) -> Outcome:
    why: list[str] = []
    leg = Leg(replay, notice=notice)

    async def run() -> Played:
        loop = asyncio.get_running_loop()

        def stop(reason: str) -> None:
            why.append(reason)
            leg.stop()
            loop.call_later(PATIENCE_S, leg.stop)

        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stop, f"stopped by {name.name}")
        loop.call_later(bound.seconds, stop, bound.told)
        return await leg.play()

    started_s, played = time.monotonic(), None
    try:
        played = asyncio.run(run())
    except BaseExceptionGroup as group:
        raise first_of(group) from group  # a mistake of ours: what the user can mend comes alone
    except asyncio.CancelledError:
        if not why:  # nobody asked: a fault of ours
            raise
    usd = None if price is None else price * (time.monotonic() - started_s) / HOUR_S
    return outcome(played, arms=arms, stopped=why[0] if why else None, usd=usd)


def outcome(played: Played | None, *, arms: tuple[str, ...], stopped: str | None, usd: float | None) -> Outcome:
    """Say how a replay went; None was cancelled before its first call. One that was stopped by us has not found a server dead."""
    dead = played.died[:1] if played is not None and played.was_stopped and stopped is None else ()
    return Outcome(
        arms=arms,
        void=None if played is None else played.health.void,
        stopped=stopped,
        died=f"{copied(dead[0])} stopped answering" if dead else None,
        load_error=None if played is None else played.load_error,
        usd=usd,
    )


@contextlib.contextmanager
def _served(wanted: tuple[Endpoint, ...] | Emulated, run: str) -> Iterator[tuple[Endpoint, ...]]:
    if not isinstance(wanted, Emulated):
        yield wanted
        return
    # Servers are started anew for each run, and scatter anew, as real ones do.
    with emulated(wanted, noise=True, seed=int.from_bytes(hashlib.sha256(run.encode()).digest()[:4], "big")) as served:
        yield served


def _controlled(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    whole = endpoints
    for endpoint in endpoints:
        whole = with_control(whole, endpoint.name)
    return whole


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Call what is wrong on our side so: the endpoint is not dead."""
    try:
        yield
    except EndpointError as error:
        raise AgentloadError(error.message, hint=error.hint) from error
