"""Replay a trace against live endpoints: ask who they are, play the plan, write everything down, load what is finished."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import COMMANDED, LASTING
from agentload.endpoints.identity import Identity, kind_of
from agentload.errors import LaunchError, alone
from agentload.live.health import Health
from agentload.live.runner import Listener, Runner
from agentload.live.station import Job, Raw
from agentload.live.workers.pool import calling
from agentload.model.commands import Open
from agentload.model.controls import copied
from agentload.model.plan import Plan
from agentload.model.rows import LegRow, Row
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.run.barrier import Barrier
from agentload.run.loading import loaded, looked_at
from agentload.run.meeting import Met, caveats, met_in_turn, met_side_by_side
from agentload.run.past import Past, check_resumed, needless, past
from agentload.run.record import again, arm_row, fingerprint, leg_row, run_row, scraped
from agentload.run.relay import Launching, Relay
from agentload.run.servers import source, speech, targets
from agentload.run.vigil import Vigil
from agentload.store import journal
from agentload.store.database import WRITER_PATIENCE_S
from agentload.store.places import journal_folder, worker_journals
from agentload.study.kinds import Replay, Sweep
from agentload.study.parts import Live
from agentload.study.stored import Notes
from agentload.telemetry.watch import Watch

SAMPLE_S = 5.0
BETWEEN_S = 1.0  # pairs nobody waits for the database: the journal holds every row, and servers are paid for


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """A study with everything that it takes to play it on live servers."""

    study: Replay | Sweep
    plan: Plan
    endpoints: tuple[Endpoint, ...]
    database: Path
    trace_hash: str
    is_resumed: bool = False
    into: str | None = None
    """The run beside which it is played; None: a run of its own."""
    launching: Launching | None = None
    """Start the servers in turn, as the plan's rounds say; None: they run all the time."""
    elsewhere: frozenset[int] = frozenset()
    """Pairs that another part of the run plays, with the arms on other machines."""
    notes: Notes = field(default_factory=Notes)
    sample_s: float = SAMPLE_S

    @property
    def means(self) -> Replay:
        """Return the replay whose patience and helpers hold: a sweep has those that a replay has by itself."""
        return self.study if isinstance(self.study, Replay) else Replay(traces=(), servers=self.study.servers)

    @property
    def is_forced(self) -> bool:
        """Tell whether servers are measured that are not what the arms file expects; that is kept as a caveat."""
        return isinstance(self.study.servers, Live) and self.study.servers.force

    @property
    def command(self) -> str:
        """Return the command line that plays it."""
        return again(self.study, self.database, into=self.into)

    @property
    def goes_on(self) -> str:
        """Return the command line that goes on with it."""
        return again(self.study, self.database, resume=self.plan.run if isinstance(self.study, Replay) else None, into=self.into)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a leg went."""

    run_id: str
    health: Health
    was_stopped: bool
    died: tuple[str, ...] = ()
    """Arms that stopped answering, in the order in which they did; one may have come back."""
    load_error: str | None = None
    """Why the database does not have all of it; the journals do."""


class Leg:
    """One process's part of a replay; `stop` may be called from a signal handler."""

    def __init__(self, playing: Playing, *, listener: Listener | None = None, notice: Callable[[str], None] = lambda _: None) -> None:
        self._playing = playing
        self._listener = listener
        self._notice = notice
        self._runner: Runner | None = None
        self._task: asyncio.Task[object] | None = None
        self._stops = 0
        self._died: list[str] = []

    def stop(self) -> None:
        """Let what is in flight come to its end; when asked a second time, cancel it. Before the first call, cancel `play`."""
        self._stops += 1
        if self._runner is not None:
            self._runner.stop(drain=self._stops == 1)
        elif self._task is not None and self._stops == 1:  # a second time would interrupt what ends the servers
            self._task.cancel()

    async def play(self) -> Played:
        """Play to the end, or to the end of what is in flight after `stop`."""
        self._task = asyncio.current_task()
        playing, plan = self._playing, self._playing.plan
        if playing.database.exists():
            await looked_at(playing.database, notice=self._notice)
        before = past(playing.database, plan)
        if playing.is_resumed:
            check_resumed(before, plan, playing.study, trace_hash=playing.trace_hash, database=playing.database)
        own = (play for round_ in plan.rounds for play in round_.plays if play.pair not in playing.elsewhere)
        before = replace(before, done=needless(own, before.done) | playing.elsewhere)
        async with AsyncExitStack() as stack:
            relay = None if playing.launching is None else await stack.enter_async_context(self._relay(playing.launching))
            met = await self._meet(relay, before)
            told = self._caveats(met.identities, before)
            leg = leg_row(plan.run, before.legs + 1)
            folder = journal_folder(playing.database, plan.run)
            folder.mkdir(parents=True, exist_ok=True)
            writer = stack.enter_context(journal.Writer(folder / f"leg{leg.leg:03}.journal"))
            for row in self._opening(leg, before, met, caveats=told):
                writer.append(row)
            writer.sync()  # that there is such a leg outlasts the machine
            try:
                with alone():
                    health = await self._measure(leg, before, writer, met, relay)
            except BaseException:
                writer.append(replace(leg, ended_ns=time.monotonic_ns(), status="failed"))
                raise
            ended = replace(leg, ended_ns=time.monotonic_ns(), health=json.dumps(asdict(health)))
            writer.append(replace(ended, status="stopped" if self._stops else "done"))
        was_stopped = bool(self._stops)
        error = await self._load(patience_s=WRITER_PATIENCE_S)
        return Played(run_id=plan.run, health=health, was_stopped=was_stopped, died=tuple(self._died), load_error=error)

    def _relay(self, launching: Launching) -> Relay:
        endpoints = {e.name: e for e in self._playing.endpoints}
        return Relay(endpoints, launching, is_forced=self._playing.is_forced, is_stopping=lambda: self._stops > 0, notice=self._notice)

    async def _meet(self, relay: Relay | None, before: Past) -> Met:
        endpoints = self._playing.endpoints
        if relay is None:
            return await met_side_by_side(endpoints, notice=self._notice)
        plays = (play for round_ in self._playing.plan.rounds for play in round_.plays if play.pair not in before.done)
        first = next((copied(play.arm) for play in plays), None)
        return await met_in_turn(endpoints, relay, first=first, notice=self._notice)

    def _caveats(self, identities: Mapping[str, Identity], before: Past) -> tuple[str, ...]:
        """Stop where a server is not what it should be, unless that was asked for; tell everything else."""
        playing = self._playing
        return caveats(
            playing.endpoints,
            identities,
            before=before.began_as,
            names=COMMANDED if playing.elsewhere else LASTING,  # on another machine a server may choose another kernel
            is_forced=playing.is_forced,
            notice=self._notice,
        )

    async def _measure(
        self,
        leg: LegRow,
        before: Past,
        writer: journal.Writer,
        met: Met,
        relay: Relay | None,
    ) -> Health:
        playing, plan = self._playing, self._playing.plan
        endpoints = {e.name: e for e in playing.endpoints}
        watch = Watch({e.name: source(e) for e in playing.endpoints}, every_s=playing.sample_s, notice=self._notice)
        vigil = Vigil(self._lost)

        async def pair_done(_: int) -> None:
            writer.sync()
            await self._load(patience_s=BETWEEN_S)

        barrier = Barrier(
            run_id=plan.run,
            leg=leg.leg,
            endpoints=endpoints,
            before=met.identities,
            pair_size=len(plan.arms),
            write=writer.append,
            samples=lambda: watch.rows(run_id=plan.run, leg=leg.leg),
            vigil=vigil,
            on_dead=playing.means.on_dead,
            pair_done=pair_done,
            is_stopping=lambda: self._stops > 0,
            notice=self._notice,
            goes_on=playing.goes_on,
        )
        speeches = {name: speech(e, met.models[name], playing.means.request) for name, e in endpoints.items()}
        job = Job(
            run_id=plan.run,
            leg=leg.leg,
            seed=plan.seed,
            targets=partial(targets, playing.endpoints),
            speech=speeches,
            trace_seed=plan.header.seed,
            block=plan.header.block,
            tokenizer=met.counted or WORD_TOKENS,
            renews_keys=any(e.key_command is not None for e in playing.endpoints),
            raw=None if playing.means.keep_raw is None else Raw(folder=writer.path.parent, which=playing.means.keep_raw),
        )
        own = () if playing.means.workers == 1 else worker_journals(writer.path, playing.means.workers)

        async def opened(command: Open) -> None:
            assert relay is not None
            (arm,) = command.arms
            try:
                up = await relay.up(arm)
            except LaunchError:
                if not self._stops:  # else it was given up because we were asked to
                    raise
                return
            barrier.started(up.endpoint, up.identity, command.round)
            watch.follow(arm, up.endpoint.log)

        async with calling(job, writer.append, journals=own) as caller, asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch.run())
            self._runner = Runner(
                plan,
                caller,
                barrier,
                leg=leg.leg,
                write=writer.append,
                flush=lambda: writer.flush_if_due(time.monotonic_ns()),
                opening=opened,
                listeners=[barrier, vigil, *([self._listener] if self._listener else [])],
                done=before.done,
                voided=before.lost,
            )
            health = await self._runner.play()
            watching.cancel()
        return health

    def _lost(self, arm: str) -> None:
        assert self._runner is not None
        self._died.append(arm)
        match self._playing.means.on_dead:
            case "wait":
                self._notice(f"{arm} stopped answering: waiting for it, then its pair is played again")
                self._runner.lose(arm, for_good=False)
            case "skip":
                self._notice(f"{arm} stopped answering: going on without it")
                self._runner.lose(arm, for_good=True)
            case "stop":
                self._notice(f"{arm} stopped answering: stopping")
                self.stop()

    def _opening(
        self,
        leg: LegRow,
        before: Past,
        met: Met,
        *,
        caveats: tuple[str, ...],
    ) -> list[Row]:
        playing, plan = self._playing, self._playing.plan
        identities, models, counted = met.identities, met.models, met.counted
        rows: list[Row] = [leg]
        if before.run is None:
            names = set(models.values())
            described = run_row(
                plan,
                playing.study,
                kind=kind_of(identities),
                name=plan.header.name,
                trace_hash=playing.trace_hash,
                model=names.pop() if len(names) == 1 else None,
                created_ns=time.time_ns(),
                command=playing.command,
                notes=msgspec.structs.replace(playing.notes, lengths="words" if counted is None else counted.exact, caveats=caveats),
                cache_block=identities[plan.arms[0]].cache_block,
            )
            rows += [
                described,
                *(arm_row(plan.run, position, e, models[e.name], identities[e.name]) for position, e in enumerate(playing.endpoints)),
            ]
        rows += [fingerprint(plan.run, leg.leg, name, identity, moment="before") for name, identity in identities.items()]
        if playing.launching is None:
            for endpoint in playing.endpoints:
                rows += scraped(plan.run, leg.leg, endpoint, identities[endpoint.name])
        return rows

    async def _load(self, *, patience_s: float) -> str | None:
        """Bring the database up to date; being asked to stop once more ends the wait for it."""
        playing, stops = self._playing, self._stops
        return await loaded(
            playing.plan.run, playing.database, patience_s=patience_s, is_stopping=lambda: self._stops > stops, notice=self._notice
        )
