"""Play a job once: its trace, within its budget, against its endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from agentload.errors import AgentloadError, EndpointError, InterruptError, first_of
from agentload.model.controls import copied, is_control
from agentload.run.foreground import Audience, played
from agentload.run.play import Played, Playing
from agentload.run.prepared import Place, prepared
from agentload.run.servers import ALL
from agentload.study.change import extended
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
    study = extended(job.study, aa=ALL if is_controlled else job.study.aa)
    # Emulated servers are started anew for each run, and scatter anew, as real ones do.
    scatter = int.from_bytes(hashlib.sha256(run.encode()).digest()[:4], "big")
    with contextlib.ExitStack() as stack:
        with _ours():
            place = Place(database=database, run=run, folder=job.folder)
            made = stack.enter_context(prepared(study, place, laid=lambda trace, arms: cut(trace, job, arms), scatter=scatter))
            playing = made.playing
            assert isinstance(playing, Playing), playing
            arms = [endpoint for endpoint in playing.endpoints if not is_control(endpoint.name)]
            for endpoint in arms:
                endpoint.key()
        price = usd_per_hour(job, arms)
        bound = limit(job, price, is_controlled=is_controlled)
        noted = replace(playing, notes=msgspec.structs.replace(playing.notes, job=job.name))
        return _watched(noted, tuple(endpoint.name for endpoint in arms), bound, price, notice)


def _watched(playing: Playing, arms: tuple[str, ...], bound: Limit, price: float | None, notice: Callable[[str], None]) -> Outcome:
    why: list[str] = []

    @contextlib.contextmanager
    def stopping(stop: Callable[[], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def stopped(reason: str) -> None:
            why.append(reason)
            stop()
            loop.call_later(PATIENCE_S, stop)

        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stopped, f"stopped by {name.name}")
        loop.call_later(bound.seconds, stopped, bound.told)
        yield

    started_s, ended = time.monotonic(), None
    try:
        ended = played(playing, Audience(notice=notice, stopping=stopping))
    except BaseExceptionGroup as group:
        raise first_of(group) from group  # a mistake of ours: what the user can mend comes alone
    except InterruptError:
        if not why:  # nobody asked: a fault of ours
            raise
    usd = None if price is None else price * (time.monotonic() - started_s) / HOUR_S
    return outcome(ended, arms=arms, stopped=why[0] if why else None, usd=usd)


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
def _ours() -> Iterator[None]:
    """Call what is wrong on our side so: the endpoint is not dead."""
    try:
        yield
    except EndpointError as error:
        raise AgentloadError(error.message, hint=error.hint) from error
