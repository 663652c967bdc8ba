"""Find how much load an arm carries within service levels, live or in virtual time.

Every trial is a new draw of sessions: which of them run decides what an arm carries by a fifth, and a search that believed a single trial
would find its luck. Loads are doubled until one breaks and halved until one holds; from there on a curve through all trials of all arms
says where the limit may lie, and the next load is taken from what it leaves open.
"""

import asyncio
import json
import math
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from agentload.dispatch.arrivals import seeded
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import Kept
from agentload.errors import EndpointError, LaunchError
from agentload.evidence.capacity import PROBE, VOID, Step, fit, next_search
from agentload.layout.cost import wait_s
from agentload.layout.plan import plan
from agentload.layout.traces import primed, shuffled
from agentload.model.metrics import clock_start
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop
from agentload.model.profile import ArmProfile
from agentload.model.rows import BlockRow, CallRow, FingerprintRow, ProbeRow, Row, SampleRow
from agentload.model.trace import Trace
from agentload.run.play import Leg, Played, Playing
from agentload.run.record import new_run_id
from agentload.run.trial import Tally, Trial, broken_level, trouble
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder, journals
from agentload.study.kinds import Replay, Search, What
from agentload.study.parts import Slo
from agentload.study.quantity import LIMITS
from agentload.virtual.shell import Shell

LARGEST: Final = 1 << 14
FEWEST: Final = 6
"""Trials of an arm: with fewer nobody knows how far draws of sessions lie apart."""
MOST: Final = 16
"""Trials of an arm beyond those that bracket its limit."""
WIDTH: Final = 0.16
"""Half width at which a search ends: the ratio of two such arms is known within a quarter."""
OPEN: Final = (0.5, 0.9, 0.2)
"""Where in what is left open the next load is taken: below, at and above the limit, by turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The load that an arm carries, with the ends of its interval; None: nothing held, nothing broke, or a trial that says nothing."""

    arm: str
    holds: float | None
    low: float | None
    high: float | None
    trials: tuple[Trial, ...]

    @property
    def void(self) -> Trial | None:
        """Return the trial that ended the search because it says nothing of the server."""
        return next((trial for trial in self.trials if trial.void is not None), None)

    @property
    def broken(self) -> Trial | None:
        """Return the trial of the smallest load that did not hold."""
        return min((trial for trial in self.trials if trial.trouble is not None), key=lambda trial: trial.load, default=None)


class _EndError(Exception):
    """Nothing more is tried: a trial says nothing, and others would not either, or there were as many as were asked for."""


def search(
    arm: str,
    attempt: Callable[[float, int], Trial],
    *,
    start: float,
    whole: bool,
    share: float,
    others: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    most: int | None = None,
    width: float = WIDTH,
) -> tuple[Trial, ...]:
    """Try loads until the limit of *arm* is known well enough, or *most* were; a void trial ends the search where it is.

    *attempt* is told which draw of sessions it is; trials of *others* say how steep the curve is and how far draws lie apart.
    """
    trials: list[Trial] = []

    def holds(load: float) -> bool:
        trials.append(attempt(load, len(trials)))
        if trials[-1].void is not None or len(trials) == most:
            raise _EndError
        return trials[-1].trouble is None

    with suppress(_EndError):
        has_held = False
        for load in _doubling(start):
            if not holds(load):
                break
            has_held = True
        else:
            return tuple(trials)
        if not has_held and not any(holds(load) for load in _halving(start, whole=whole)):
            return tuple(trials)
        for _, probability in zip(range(most or MOST), cycle(OPEN), strict=False):
            known = fit(_telling({**others, arm: trials}), share=share)
            if len(trials) >= FEWEST and known.limit(arm).is_within(width):
                break
            load = known.at(arm, probability)
            holds(max(1.0, float(round(load))) if whole else float(f"{load:.3g}"))
    return tuple(trials)


def settled(tried: Mapping[str, Sequence[Trial]], *, share: float) -> tuple[Found, ...]:
    """Return what the trials of all arms say together of each."""
    told = _telling(tried)
    known = fit(told, share=share) if told else None
    found = []
    for arm, trials in tried.items():
        error = max((each.error for each in trials), default=0.0)
        limit = known.limit(arm).widened(error) if known is not None and arm in told else None
        holds, low, high = (None, None, None) if limit is None else (limit.value or None, limit.low or None, limit.high)
        found.append(Found(arm=arm, holds=holds, low=low, high=high, trials=tuple(sorted(trials, key=lambda trial: trial.load))))
    return tuple(found)


def _telling(tried: Mapping[str, Sequence[Trial]]) -> dict[str, list[Step]]:
    """Return what each arm's trials say, of those that say something."""
    told: dict[str, list[Step]] = {}
    for arm, trials in tried.items():
        if own := [each for each in trials if each.void is None]:
            told[arm] = [(each.load, each.turns, each.within, each.trouble, each.worth) for each in own]
    return told


def rows(found: Found, *, run_id: str, at_ns: int, study: Search, classes: Collection[str]) -> Iterator[ProbeRow]:
    """Return the steps of a search for concurrency as rows beside a run; *at_ns* is that of all of them, *classes* whose sessions ran."""
    slo = "" if study.slo is None else LIMITS.write(study.slo)
    for number, trial in enumerate(found.trials):
        # Rows are told apart by their settings, and one load is tried more than once.
        settings = {"agents": round(trial.load), "slo": slo, "share": study.share, "classes": sorted(classes), "trial": number}
        detail = asdict(trial) | {"minutes": study.trial_s / 60}
        yield ProbeRow(
            run_id=run_id,
            arm=found.arm,
            probe=PROBE,
            at_ns=at_ns,
            settings=json.dumps(settings, sort_keys=True),
            outcome=VOID if trial.void is not None else trial.trouble or "ok",
            detail=json.dumps(detail, sort_keys=True),
        )


def _doubling(start: float) -> Iterator[float]:
    load = start
    while load <= LARGEST:
        yield load
        load *= 2


def _halving(start: float, *, whole: bool) -> Iterator[float]:
    load = start / 2
    while load >= (1 if whole else 1e-3):
        yield float(math.floor(load)) if whole else load
        load /= 2


def keep(rows: Iterable[Row], database: Path, *, run_id: str, name: str) -> None:
    """Write the rows into a journal of their own, and load it."""
    path = journal_folder(database, run_id) / f"{name}.journal"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    load([path], database)


def keep_searches(found: Sequence[Found], database: Path, *, run: str, at_ns: int | None, study: Search, classes: Collection[str]) -> None:
    """Keep searches beside a run, where they take the place of those before; a simulated one has no date, only its place behind them."""
    if at_ns is None:
        with reading(database) as connection:
            at_ns = next_search(connection, run)
    steps = (row for each in found for row in rows(each, run_id=run, at_ns=at_ns, study=study, classes=classes))
    keep(steps, database, run_id=run, name="capacity")


FASTEST_TOKEN_S = 0.002  # no deployment that is known decodes a sequence faster
START: dict[What, float] = {"max-concurrency": 8, "max-rate": 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A load that is tried, with the seed of its draw of sessions and what those are worth."""

    load: float
    seed: int
    worth: float
    error: float

    def of(self, trial: Trial) -> Trial:
        """Return the trial that was made of it."""
        return replace(trial, worth=self.worth, error=self.error)


Loads: TypeAlias = Sequence[Chosen]
"""What is tried, and nothing else."""


def find(
    study: Search,
    trace: Trace,
    arm: ArmProfile,
    *,
    others: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    loads: Loads = (),
    most: int | None = None,
) -> tuple[Trial, ...]:
    """Try numbers of sessions, or of session starts a second, to find the most that *arm* carries within the service level.

    Each load is played for a trial of virtual time, the first quarter of which is left out: caches fill, queues build up. The first
    sessions of a closed loop begin in the middle: while all are young, the pool holds several times as many as later on.
    """
    if loads:
        return tuple(each.of(played(study, trace, arm, each.load, seed=each.seed)) for each in loads)
    is_closed = study.find == "max-concurrency"
    return search(
        arm.name,
        lambda size, number: played(study, trace, arm, size, seed=drawn(study, arm.name, number)),
        start=START[study.find],
        whole=is_closed,
        share=study.share,
        others=others,
        most=most,
    )


def played(study: Search, trace: Trace, arm: ArmProfile, size: float, *, seed: int) -> Trial:
    """Play one load for a trial of virtual time; the seed draws which sessions run, where they begin, and the noise."""
    seconds, load = study.trial_s, study.load.planned()
    sessions, shortest_s = _shape(trace, load)
    is_closed = study.find == "max-concurrency"
    arrivals = ClosedLoop(sessions=round(size)) if is_closed else OpenLoop(rate_per_s=size)
    load = replace(load, arrivals=arrivals, budget=Budget(seconds=seconds))
    enough = math.ceil(size * (1 + (1 / shortest_s if is_closed else 1.0) * seconds) / sessions) + 1
    first = round(size) if is_closed else 0
    repeated = Trace(header=trace.header, sessions=shuffled(trace, enough, seed, load, first))
    # They are gone through more than once, and are as many as a trial may play.
    begun = Trace(header=trace.header, sessions=tuple(primed(repeated, first, seed)))
    made = plan(begun, [arm.name], run=f"find-{size:g}", seed=seed, pairs=1, load=load)
    tally = Tally(study.slo or Slo(), begun_ns=0, seconds=seconds, start=clock_start(load))
    for row in Shell(made, {arm.name: arm}, seed=seed, sample_s=max(1.0, seconds / 60)).play():
        tally.add(row)
    trial = tally.trial(size)
    return replace(trial, trouble=broken_level(trial, study.share))


def drawn(study: Search, arm: str, number: int) -> int:
    """Return the seed of a trial: each is a new draw of sessions, of where they begin, and of the noise."""
    return seeded(study.seed, "trial", arm, number).getrandbits(32)


def _shape(trace: Trace, load: Load) -> tuple[int, float]:
    """Return how many sessions a trace has, and the least time that an average one takes."""
    count, total_s = 0, 0.0
    for session in trace.sessions:
        count += 1
        total_s += sum(wait_s(load, turn) + turn.output * FASTEST_TOKEN_S for turn in session.turns)
    return max(1, count), max(FASTEST_TOKEN_S, total_s / max(1, count))


FASTEST_SESSION_S: Final = 0.5
FEW: Final = 4
"""Sessions that a search begins with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What every trial of a search has in common."""

    study: Search
    trace: Trace
    play: Callable[[Leg], Played] = lambda leg: asyncio.run(leg.play())
    """Plays a trial to its end."""

    def search(
        self,
        arm: Endpoint,
        *,
        told: Callable[[str], None],
        server: Kept | None = None,
        others: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
        loads: Loads = (),
        most: int | None = None,
    ) -> tuple[Trial, ...]:
        """Try numbers of sessions on *arm*; each trial is told when it is over. A server of ours is kept up."""

        def attempt(size: float, number: int) -> Trial:
            try:
                trial = self._tried(arm, round(size), loads[number].seed if loads else drawn(self.study, arm.name, number), server)
            except (EndpointError, LaunchError) as error:
                if not number:
                    raise
                trial = Trial(load=size, void=error.message)
            told(f"{arm.name}: {size:.0f} sessions: {described(trial)}")
            if trial.void is not None:
                told(f"warning: {arm.name}: the search ends at {size:.0f} sessions, which say nothing of the server: {trial.void}")
            return trial

        if loads:
            trials: list[Trial] = []
            for number, each in enumerate(loads):
                trials.append(each.of(attempt(each.load, number)))
                if trials[-1].void is not None:
                    break
            return tuple(trials)
        start = self.study.start or FEW
        return search(arm.name, attempt, start=start, whole=True, share=self.study.share, others=others, most=most)

    def _tried(self, arm: Endpoint, sessions: int, seed: int, server: Kept | None) -> Trial:
        if server is not None:
            server.up()
        trial, late = self._trial(arm, sessions, seed)
        if server is not None and (words := server.last_words()) is not None:
            trial = replace(trial, died=words, void=None)
        if trial.void is not None:
            return trial
        trial = replace(trial, trouble=trouble(trial, self.study.share))
        # Our own lag makes turns slower and never faster: what holds in spite of it holds, and trouble that is no matter of time stays.
        return replace(trial, void=f"it may be our own side: {late}") if late is not None and trial.trouble == "slo" else trial

    def _trial(self, arm: Endpoint, sessions: int, seed: int) -> tuple[Trial, str | None]:
        """Return one trial, and why its times are not the server's, if they are not."""
        given = sum(1 for _ in self.trace.sessions)
        rounds = math.ceil(sessions * (1 + self.study.trial_s / FASTEST_SESSION_S) / max(1, given))
        load = msgspec.structs.replace(self.study.load, sessions=sessions, duration_s=self.study.trial_s)
        repeated = Trace(header=self.trace.header, sessions=shuffled(self.trace, rounds, seed, load.planned(), sessions))
        played_once = Replay(traces=self.study.traces, servers=self.study.servers, pairs=1, load=load, seed=seed, on_dead="skip")
        made = plan(
            Trace(header=self.trace.header, sessions=primed(repeated, sessions, seed)),
            [arm.name],
            run=new_run_id(),
            seed=seed,
            pairs=1,
            load=load.planned(),
        )
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / "trial.duckdb"
            playing = Playing(
                study=played_once,
                plan=made,
                endpoints=(arm,),
                database=scratch,
                trace_hash="",
                sample_s=max(0.5, min(5.0, self.study.trial_s / 30)),
            )
            try:
                played = self.play(Leg(playing))
            except EndpointError as error:
                raise EndpointError(f"{error.message} (after {sessions} sessions at once)", hint=error.hint) from error
            rows = [row for path in journals(scratch, made.run) for row in journal.read(path)]
        return measured(sessions, rows, self.study.slo or Slo(), self.study.trial_s, died=_died(rows, played)), played.health.void


def measured(sessions: int, rows: Iterable[Row], slo: Slo, seconds: float, *, died: str | None) -> Trial:
    """Return what the last play of a trial's block says: those before it were void, and a void one says nothing."""
    found = list(rows)
    last = max((row for row in found if isinstance(row, BlockRow)), key=lambda row: row.started_ns, default=None)
    if died is None and (last is None or last.void is not None):
        return Trial(load=sessions, void="nothing was played" if last is None else last.void)
    begun_ns = 0 if last is None else last.started_ns
    # What was counted just before the play is where its counts begin.
    counted_ns = max((row.at_ns for row in found if isinstance(row, SampleRow) and row.at_ns < begun_ns), default=begun_ns)
    tally = Tally(slo, begun_ns=begun_ns, seconds=seconds)
    for row in found:
        if (isinstance(row, CallRow) and row.released_ns >= begun_ns) or (isinstance(row, SampleRow) and row.at_ns >= counted_ns):
            tally.add(row)
    return replace(tally.trial(sessions), died=died)


def described(trial: Trial) -> str:
    """Say how a trial went, in a line."""
    if trial.void is not None:
        return "void"
    parts = [f"{trial.share:.0%} of {trial.turns} turns hold"]
    if trial.preemptions is not None:
        parts.append(f"{trial.preemptions} preemptions")
    if trial.waiting_share is not None:
        parts.append(f"waiting {trial.waiting_share:.0%} of the time")
    if trial.preemptions is None or trial.waiting_share is None:
        parts.append("the server does not tell whether it preempts and queues")
    if trial.died is not None:
        parts.append(f"it died: {trial.died}")
    return ", ".join(parts)


def _died(rows: Iterable[Row], played: Played) -> str | None:
    """Say how a server died that is not ours: somebody may have started it again."""
    starts = {json.loads(row.facts).get("process_start_s") for row in rows if isinstance(row, FingerprintRow)} - {None}
    if len(starts) > 1:
        return "it was started again meanwhile"
    return "it stopped answering" if played.died else None
