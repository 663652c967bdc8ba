"""Play a job once: its trace, within its budget, against its endpoints."""

import asyncio
import contextlib
import hashlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import AgentloadError, EndpointError, InterruptError, first_of
from agentload.layout.windows import fitting, steady
from agentload.model.controls import is_control, original
from agentload.run.arms import ALL, read_arms
from agentload.run.audience import Audience
from agentload.run.files import read_traces
from agentload.run.lay import lay_out
from agentload.run.measure import play_stages
from agentload.run.place import Place
from agentload.run.play import Played, Playing
from agentload.run.ready import ready
from agentload.study.change import extended
from agentload.study.kinds import Replay
from agentload.watch.history import Outcome
from agentload.watch.job import Job

HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """State when an execution is stopped, and why."""

    seconds: float
    told: str


def usd_per_hour(job: Job, endpoints: Sequence[Endpoint]) -> float | None:
    """Return the US dollars per hour of the servers; None where one has no price.

    The price of a GPU is that of the policy, else that of the arms file.
    """
    total = 0.0
    for endpoint in endpoints:
        price = (
            endpoint.price_per_hour
            if job.setting.price is None
            else job.setting.price.usd_per_gpu_hour
        )
        if price is None:
            return None
        total += price * (endpoint.gpus or 1) * len(endpoint.metrics_urls)
    return total


def limit(job: Job, price: float | None, *, is_controlled: bool) -> TimeLimit:
    """Return the tighter limit of minutes and dollars.

    Raises `AgentloadError` when dollars are bounded and no price is known.
    """
    budget, times = job.budget, job.times(is_controlled=is_controlled)
    twice = "" if times == 1 else ", twice for a run with its control"
    by_time = TimeLimit(
        seconds=60 * budget.minutes * times, told=f"time limit of {budget.minutes:g} minutes{twice}"
    )
    if budget.usd is None or price == 0:
        return by_time
    if price is None:
        raise AgentloadError(
            f"job '{job.name}': budget.usd is {budget.usd:g}, but not every endpoint has a price",
            hint="price_per_hour in the arms file, or price: {usd_per_gpu_hour: 2.5, source: …} "
            "in the policy",
        )
    told = f"cost limit of {budget.usd:g} USD{twice}, at {price:g} USD an hour"
    by_cost = TimeLimit(seconds=HOUR_S * budget.usd * times / price, told=told)
    return min(by_time, by_cost, key=lambda each: each.seconds)


def bounded_study(study: Replay, calls: int | None, arms: int) -> Replay:
    """Return a study whose executions send *calls* calls in all.

    Each pair plays its share on windows of the whole trace. The windows are always the same, or
    runs could not be compared. Raises AgentloadError where a pair has no call.
    """
    if calls is None:
        return study
    share = calls // (arms * study.pairs)
    if not share:
        raise AgentloadError(
            f"budget.calls of {calls} is less than one for each of {arms} arms in "
            f"{study.pairs} pairs",
            hint="raise budget.calls",
        )
    limited = extended(
        study, max_calls=share if study.load.max_calls is None else min(share, study.load.max_calls)
    )
    if study.windows is not None or study.capacity is not None:
        return limited
    trace, _ = read_traces(study.traces, max_context_tokens=study.load.max_context_tokens)
    return extended(limited, windows=fitting(steady(trace, limited.load.planned()), study.pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Playthrough:
    """Report how the replay of an execution went."""

    arms: tuple[str, ...]
    outcome: Outcome
    reason: str | None = None
    """Why the replay gave no usable figures."""
    usd: float | None = None
    """US dollars that the servers cost meanwhile."""


def play(
    job: Job, *, run: str, database: Path, is_controlled: bool, notice: Callable[[str], None]
) -> Playthrough:
    """Replay the job's trace, with an A/A control of every arm if *is_controlled*.

    Raises EndpointError for a dead endpoint.
    """
    # Emulated servers are started again for each run, and scatter in another way, as real ones do.
    noise_seed = int.from_bytes(hashlib.sha256(run.encode()).digest()[:4], "big")
    study = extended(job.study, aa=ALL if is_controlled else job.study.aa, noise_seed=noise_seed)
    with contextlib.ExitStack() as stack:
        with _ours():
            place = Place(database=database, run=run)
            try:
                bounded = bounded_study(
                    study, job.budget.calls, len(read_arms(study.servers).names)
                )
            except AgentloadError as error:
                raise AgentloadError(
                    f"job '{job.name}': {error.message}", hint=error.hint
                ) from error
            made = stack.enter_context(lay_out(bounded, place))
            playing = made.playing
            assert isinstance(playing, Playing), playing
            arms = [endpoint for endpoint in playing.endpoints if not is_control(endpoint.name)]
            for endpoint in arms:
                endpoint.key()
            ready(made, notice)
        price = usd_per_hour(job, arms)
        bound = limit(job, price, is_controlled=is_controlled)
        noted = replace(playing, notes=msgspec.structs.replace(playing.notes, job=job.name))
        return _watched(noted, tuple(endpoint.name for endpoint in arms), bound, price, notice)


def _watched(
    playing: Playing,
    arms: tuple[str, ...],
    bound: TimeLimit,
    price: float | None,
    notice: Callable[[str], None],
) -> Playthrough:
    why: list[str] = []

    @contextlib.contextmanager
    def stopping(stop: Callable[[], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def stopped(reason: str) -> None:
            why.append(reason)
            stop()

        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stopped, f"stopped by {name.name}")
        loop.call_at(
            started_s + bound.seconds, stopped, bound.told
        )  # the limit is an instant: a run may have several parts, each with a loop of its own
        yield

    started_s, ended = time.monotonic(), None
    try:
        ended = play_stages(playing, Audience(notice=notice, stopping=stopping))
    except BaseExceptionGroup as group:
        raise first_of(group) from group  # our bug: an error that the user can fix comes alone
    except InterruptError:
        if not why:  # no stop was requested: our bug
            raise
    usd = None if price is None else price * (time.monotonic() - started_s) / HOUR_S
    word, reason = outcome(ended, stopped=why[0] if why else None)
    return Playthrough(arms=arms, outcome=word, reason=reason, usd=usd)


def outcome(played: Played | None, *, stopped: str | None) -> tuple[Outcome, str | None]:
    """Return the outcome of a replay, and the reason.

    *played* is None if it was cancelled before its first call; *stopped* says why we stopped it.
    """
    if played is not None and played.load_error is not None:
        return "failed", f"the run is in its journal only: {played.load_error}"
    if stopped is not None or played is None:
        return "failed", stopped
    if played.died and played.was_stopped:
        return "dead", f"{original(played.died[0])} stopped answering"
    return ("done" if played.health.void is None else "void"), played.health.void


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Report errors on our side as such: the endpoint is not dead."""
    try:
        yield
    except EndpointError as error:
        raise AgentloadError(error.message, hint=error.hint) from error
