"""Replay a trace against live endpoints: ask who they are,
play the plan, write everything down, load what is finished.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from agentload.endpoints.facts import COMMANDED, LASTING
from agentload.endpoints.identity import Identity
from agentload.errors import AgentloadError, EndpointError, EvidenceError, LaunchError
from agentload.layout.cost import too_long
from agentload.live.health import Health
from agentload.live.runner import Listener, Runner
from agentload.live.station import Job, Raw
from agentload.live.workers.messages import Play
from agentload.live.workers.pool import calling
from agentload.model.commands import Open
from agentload.model.controls import copied
from agentload.model.plan import Plan
from agentload.model.rows import BlockRow, CallRow, Row
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.remote.cluster import seats
from agentload.remote.crew import Crew
from agentload.run.barrier import Barrier
from agentload.run.part import Part as Opened
from agentload.run.part import Work, loaded, looked_at, part
from agentload.run.past import Past, check_resumed, needless, past
from agentload.run.record import again, scraped
from agentload.run.servers import TEXT, source, speech, targets, window
from agentload.store.database import WRITER_PATIENCE_S
from agentload.store.places import worker_journals
from agentload.study.kinds import Replay, Sweep
from agentload.telemetry.watch import Watch

SAMPLE_S = 5.0
# pairs nobody waits for the database: the journal holds every row, and servers are paid for
BETWEEN_S = 1.0
TOOLS: Final = (
    "`extra_body: {tool_choice: none}` in the arms file, or --enable-auto-tool-choice and "
    "--tool-call-parser on the server"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing(Work):
    """A study with everything that it takes to play it on live
    servers; they are started in turn as the plan's rounds say.
    """

    study: Replay | Sweep
    plan: Plan
    trace_hash: str
    is_resumed: bool = False
    elsewhere: frozenset[int] = frozenset()
    """Pairs that another part of the run plays, with the arms on other machines."""
    stops_late: bool = False
    """End behind the pair where requests left too late to count."""
    met: Callable[[Mapping[str, Identity]], None] = lambda _: None
    """Is told what the servers are, before anything is sent to them."""
    sample_s: float = SAMPLE_S

    @property
    def means(self) -> Replay:
        """Return the replay whose patience and helpers
        hold: a sweep has those that a replay has by itself.
        """
        study = self.study
        if isinstance(study, Replay):
            return study
        return Replay(
            traces=(), servers=study.servers, request=study.request, timeouts=study.timeouts
        )

    @property
    def goes_on(self) -> str:
        """Return the command line that goes on with it."""
        return again(
            self.study,
            self.database,
            resume=self.plan.run if isinstance(self.study, Replay) else None,
            into=self.into,
        )


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

    def __init__(
        self,
        playing: Playing,
        *,
        listener: Listener | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._playing = playing
        self._listener = listener
        self._notice = notice
        self._runner: Runner | Crew | None = None
        self._task: asyncio.Task[object] | None = None
        self._stops = 0
        self._died: list[str] = []
        self._hopeless: AgentloadError | None = None
        self._own_stops = 0

    def stop(self) -> None:
        """Let what is in flight come to its end; when asked a second time, cancel it.

        Before the first call, cancel `play`.
        """
        self._stops += 1
        if self._runner is not None:
            self._runner.stop(drain=self._stops == 1)
        elif (
            self._task is not None and self._stops == 1
        ):  # a second time would interrupt what ends the servers
            self._task.cancel()

    async def play(self) -> Played:
        """Play to the end, or to the end of what is in flight after `stop`."""
        self._task = asyncio.current_task()
        playing, plan = self._playing, self._playing.plan
        await looked_at(playing.database, notice=self._notice)
        before = past(playing.database, plan)
        if playing.is_resumed:
            check_resumed(
                before,
                plan,
                playing.study,
                trace_hash=playing.trace_hash,
                database=playing.database,
            )
        own = tuple(
            play
            for round_ in plan.rounds
            for play in round_.plays
            if play.pair not in playing.elsewhere
        )
        before = replace(before, done=needless(own, before.done) | playing.elsewhere)
        async with part(
            playing,
            plan.run,
            before,
            first=next((copied(play.arm) for play in own if play.pair not in before.done), None),
            names=COMMANDED
            if playing.elsewhere
            else LASTING,  # on another machine a server may choose another kernel
            check=self._takes,
            is_stopping=lambda: self._stops > 0,
            notice=self._notice,
        ) as opened:
            if playing.launching is None:
                for endpoint in playing.endpoints:
                    for row in scraped(
                        plan.run, opened.row.leg, endpoint, opened.met.identities[endpoint.name]
                    ):
                        opened.writer.append(row)
            health = await self._measure(opened, before)
            said = {**asdict(health), "pairs": playing.study.pairs}
            opened.row = replace(
                opened.row, health=json.dumps(said), status="stopped" if self._stops else "done"
            )
        was_stopped = self._stops > self._own_stops
        error = await self._load(patience_s=WRITER_PATIENCE_S)
        if self._hopeless is not None:
            raise self._hopeless
        return Played(
            run_id=plan.run,
            health=health,
            was_stopped=was_stopped,
            died=tuple(self._died),
            load_error=error,
        )

    def _takes(self, identities: Mapping[str, Identity]) -> None:
        """Say how many turns are longer than the servers take.

        Raises PlanError where they are many.
        """
        plan = self._playing.plan
        self._playing.met(identities)
        said = too_long(
            plan.header,
            (session for block in plan.blocks for session in block.sessions),
            window(identities.values()),
        )
        if said is not None and not any(
            each.profile for each in self._playing.endpoints
        ):  # of a profile it was said before
            self._notice(f"warning: {said}")

    async def _measure(self, opened: Opened, before: Past) -> Health:
        playing, plan, means = self._playing, self._playing.plan, self._playing.means
        leg, writer, met = opened.row.leg, opened.writer, opened.met
        endpoints = {e.name: e for e in playing.endpoints}
        watch = Watch(
            {e.name: source(e) for e in playing.endpoints},
            every_s=playing.sample_s,
            notice=self._notice,
        )

        def write(row: Row) -> None:
            writer.append(row)
            if isinstance(row, BlockRow) and isinstance(self._runner, Runner):
                self._runner.closed(row)

        async def pair_done(_: int) -> None:
            writer.sync()
            await self._load(patience_s=BETWEEN_S)
            self._end_if_late()

        barrier = Barrier(
            run_id=plan.run,
            leg=leg,
            endpoints=endpoints,
            before=met.identities,
            pair_size=len(plan.arms),
            write=write,
            samples=lambda: watch.rows(run_id=plan.run, leg=leg),
            lost=self._lost,
            given_up=self._refused,
            on_invalid=self._invalid,
            on_dead=means.on_dead,
            pair_done=pair_done,
            is_stopping=lambda: self._stops > 0,
            notice=self._notice,
            goes_on=playing.goes_on,
        )
        # Servers other than vLLM, which says its version, may leave tools
        # out of the prompt; recorded calls are compared with real ones.
        is_text = {
            name: met.identities[name].version is not None and means.load.history != "recorded"
            for name in endpoints
        }
        speeches = {
            name: speech(
                e, met.models[name], means.request, with_tools=TEXT if is_text[name] else {}
            )
            for name, e in endpoints.items()
        }
        job = Job(
            run_id=plan.run,
            leg=leg,
            seed=plan.seed,
            targets=partial(targets, playing.endpoints),
            speech=speeches,
            trace_seed=plan.header.seed,
            block=plan.header.block,
            tokenizer=met.counted or WORD_TOKENS,
            renews_keys=any(e.key_command is not None for e in playing.endpoints),
            raw=None
            if means.keep_raw is None
            else Raw(folder=writer.path.parent, which=means.keep_raw),
        )
        own = () if means.workers == 1 else worker_journals(writer.path, means.workers)
        models = (
            {}
            if means.on is None
            else {
                (each.session, turn): said.model
                for block in plan.blocks
                for each in block.sessions
                for turn, said in enumerate(each.turns)
            }
        )

        def called(ended: CallRow) -> None:
            barrier.called(models.get((ended.session, ended.turn)), ended)

        async def start(command: Open) -> None:
            assert opened.relay is not None
            (arm,) = command.arms
            try:
                up = await opened.relay.up(arm)
            except LaunchError:
                if not self._stops:  # else it was given up because we were asked to
                    raise
                return
            barrier.started(up.endpoint, up.identity, command.round)
            watch.follow(arm, up.endpoint.log)

        async with AsyncExitStack() as stack:
            if means.on is not None:
                self._runner = Crew(
                    await stack.enter_async_context(
                        seats(means.on, nodes=means.nodes, resume=playing.goes_on)
                    ),
                    plan,
                    Play(
                        job=job,
                        workers=means.workers,
                        done=before.done,
                        voided=dict(before.lost),
                        folder=None if means.share is None else Path(means.share),
                    ),
                    barrier,
                    write=writer.append,
                    ended=called,
                    opening=start,
                )
            else:
                self._runner = Runner(
                    plan,
                    await stack.enter_async_context(calling(job, writer.append, journals=own)),
                    barrier,
                    leg=leg,
                    write=writer.append,
                    flush=lambda: writer.flush_if_due(time.monotonic_ns()),
                    opening=start,
                    listeners=[barrier, *([self._listener] if self._listener else [])],
                    done=before.done,
                    voided=before.lost,
                )
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(watch.run())
                health = await self._runner.play()
                watching.cancel()
        return health

    def _end_if_late(self) -> None:
        """Stop where more pairs under this load would not count either."""
        is_asked = self._playing.stops_late and not self._stops
        if is_asked and isinstance(self._runner, Runner) and self._runner.health().is_late:
            self._own_stops = 1
            self.stop()

    def _refused(self, why: str) -> None:
        first = TOOLS if "tool choice" in why else "fix that"
        self._give_up(EndpointError(why, hint=f"{first}, then: {self._playing.goes_on}"))

    def _invalid(self, why: str) -> None:
        self._give_up(EvidenceError(why, hint=f"fix that, then: {self._playing.goes_on}"))

    def _give_up(self, error: AgentloadError) -> None:
        if self._hopeless is None and not self._stops:
            self._hopeless = error
            self.stop()

    def _lost(self, arm: str) -> None:
        assert self._runner is not None
        self._died.append(arm)
        match self._playing.means.on_dead:
            case "wait":
                self._notice(
                    f"{arm} stopped answering: waiting for it, then its pair is played again"
                )
                self._runner.lose(arm, for_good=False)
            case "skip":
                self._notice(f"{arm} stopped answering: going on without it")
                self._runner.lose(arm, for_good=True)
            case "stop":
                self._notice(f"{arm} stopped answering: stopping")
                self.stop()

    async def _load(self, *, patience_s: float) -> str | None:
        """Bring the database up to date; being asked to stop once more ends the wait for it."""
        playing, stops = self._playing, self._stops
        return await loaded(
            playing.plan.run,
            playing.database,
            patience_s=patience_s,
            is_stopping=lambda: self._stops > stops,
            notice=self._notice,
        )
