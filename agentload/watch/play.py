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
from agentload.layout.cost import Cost
from agentload.layout.steady import steady
from agentload.layout.windows import windows_played
from agentload.model.controls import is_control, original
from agentload.model.record import Record
from agentload.run import door
from agentload.run.arms import ALL, read_arms
from agentload.run.audience import Audience
from agentload.run.files import read_traces
from agentload.run.lay import Prepared
from agentload.run.place import StudyPlace
from agentload.run.play import Played, Playing
from agentload.run.record import Stored
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.watch.history import Outcome
from agentload.watch.job import Job

HOUR_S: Final = 3600.0


class TimeLimit(Record):
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
    budget = job.budget
    times = job.times(is_controlled=is_controlled)
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
    limited = extend(
        study, max_calls=share if study.load.max_calls is None else min(share, study.load.max_calls)
    )
    if (study.windows, study.capacity, study.benchmark) != (None, None, None):
        return limited
    trace, _ = read_traces(study.traces, max_context_tokens=study.load.max_context_tokens)
    return extend(
        limited, windows=windows_played(steady(trace, limited.load.planned()), study.pairs)
    )


def estimate(job: Job, *, database: Path, notice: Callable[[str], None]) -> Cost:
    """Return what an execution of a job takes that is not controlled; nobody is asked."""
    study = _bounded(job, job.study)
    made = door.forecast(study, StudyPlace(database=database), notice=notice)
    assert isinstance(made, Prepared), made
    return made.cost()


class Playthrough(Record):
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
    control = ALL if is_controlled else job.study.aa
    study = extend(job.study, aa=control, noise_seed=noise_seed)
    sitting = Sitting(job=job, is_controlled=is_controlled)
    ended: Stored | None = None
    try:
        ended = door.carry_out(
            _bounded(job, study),
            StudyPlace(database=database, run=run),
            Audience(notice=notice, stopping=sitting.stopping),
            adapt=sitting.begin,
        )
    except BaseExceptionGroup as group:
        raise first_of(group) from group  # our bug: an error that the user can fix comes alone
    except EndpointError as error:
        if sitting.bound is not None:
            raise
        # Nothing was sent yet: the fault is on our side, and the endpoint is not dead.
        raise AgentloadError(error.message, hint=error.hint) from error
    except InterruptError:
        if sitting.stopped is None:  # no stop was requested: our bug
            raise
    assert ended is None or isinstance(ended, Played), ended
    word, reason = outcome(ended, stopped=sitting.stopped)
    return Playthrough(arms=sitting.arms, outcome=word, reason=reason, usd=sitting.usd)


def _bounded(job: Job, study: Replay) -> Replay:
    """Return the study within the job's budget of calls. Raises AgentloadError naming the job."""
    try:
        arms = len(read_arms(study.servers).names)
        return bounded_study(study, job.budget.calls, arms)
    except AgentloadError as error:
        raise AgentloadError(f"job '{job.name}': {error.message}", hint=error.hint) from error


@dataclass(slots=True, kw_only=True)
class Sitting:
    """Follow the replay of one execution: it begins, is bounded by an instant, and may stop."""

    job: Job
    is_controlled: bool
    arms: tuple[str, ...] = ()
    bound: TimeLimit | None = None
    """Limit of the replay; None before it began."""
    stopped: str | None = None
    """Why the replay was stopped."""
    _price: float | None = None
    _began_s: float = 0.0

    def begin(self, made: Prepared) -> Prepared:
        """Start the clock of a replay that is laid out; its notes name the job.

        Raises EndpointError for a missing key, AgentloadError for a missing price.
        """
        playing = made.playing
        assert isinstance(playing, Playing), playing
        arms = [each for each in playing.endpoints if not is_control(each.name)]
        for each in arms:
            each.key()
        self.arms = tuple(each.name for each in arms)
        self._price = usd_per_hour(self.job, arms)
        self.bound = limit(self.job, self._price, is_controlled=self.is_controlled)
        self._began_s = time.monotonic()
        notes = msgspec.structs.replace(playing.notes, job=self.job.name)
        return replace(made, playing=replace(playing, notes=notes))

    @contextlib.contextmanager
    def stopping(self, stop: Callable[[], None]) -> Iterator[None]:
        """Stop a part of the replay at a signal, and at the instant of the limit."""
        loop, bound = asyncio.get_running_loop(), self.bound
        assert bound is not None, "nothing is played before the replay began"

        def stopped(reason: str) -> None:
            self.stopped = self.stopped or reason
            stop()

        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, stopped, f"stopped by {name.name}")
        # The limit is an instant: a run may have several parts, each with a loop of its own.
        loop.call_at(self._began_s + bound.seconds, stopped, bound.told)
        yield

    @property
    def usd(self) -> float | None:
        """US dollars that the servers cost so far; None where one has no price."""
        if self._price is None:
            return None
        return self._price * (time.monotonic() - self._began_s) / HOUR_S


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
