"""Replay a trace against live endpoints: identify them, play, write and load the rows."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentload.endpoints.facts import COMMANDED, LASTING
from agentload.endpoints.identity import Identity
from agentload.errors import AgentloadError, EndpointError, EvidenceError, LaunchError
from agentload.layout.cost import too_long
from agentload.live.health import Health
from agentload.live.runner import Listener, RunLeg, Runner
from agentload.live.station import Job, Raw
from agentload.live.workers.pool import calling
from agentload.model.commands import Open
from agentload.model.controls import original
from agentload.model.plan import Plan
from agentload.model.rows import BlockRow, CallRow, Row
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.run.barrier import Barrier, Rounds
from agentload.run.part import OpenPart, PartWork, load_run, look_at, part
from agentload.run.past import Past, check_resumed, needless, past
from agentload.run.record import Stored, again, counter_rows
from agentload.run.servers import TEXT, source, speech, targets, window
from agentload.store import journal
from agentload.store.database import WRITER_PATIENCE_S
from agentload.store.places import worker_journals
from agentload.study.kinds import Replay, Sweep
from agentload.telemetry.watch import TelemetryWatch

if TYPE_CHECKING:
    from agentload.remote.crew import Crew

SAMPLE_S: Final = 5.0
BETWEEN_S: Final = 1.0
"""Longest wait for the database between pairs: the journal holds every row, and servers cost money.
"""
APART_S: Final = 5.0
"""Seconds from one load between pairs to the next: opening a database takes as long as a load."""
TOOLS: Final = (
    "`extra_body: {tool_choice: none}` in the arms file, or --enable-auto-tool-choice and "
    "--tool-call-parser on the server"
)


class Playing(PartWork):
    """Describe a study to play on live servers.

    Servers that are started in turn are started as the plan's rounds say.
    """

    study: Replay | Sweep
    plan: Plan
    trace_hash: str
    is_resumed: bool = False
    elsewhere: frozenset[int] = frozenset()
    """Pairs that another part of the run plays, with the arms on other machines."""
    stops_late: bool = False
    """Whether to end after the pair in which requests left too late to count."""
    met: Callable[[Mapping[str, Identity]], None] = lambda _: None
    """Receives what the servers are, before anything is sent to them."""
    sample_s: float = SAMPLE_S

    @property
    def means(self) -> Replay:
        """Replay whose timeouts and workers hold; for a sweep, one with default workers."""
        study = self.study
        if isinstance(study, Replay):
            return study
        return Replay(
            traces=(), servers=study.servers, request=study.request, timeouts=study.timeouts
        )

    @property
    def lasting(self) -> Sequence[str]:
        """Facts that the server of an arm keeps as long as the run lasts."""
        # On another machine a server may choose another kernel.
        return COMMANDED if self.elsewhere else LASTING

    @property
    def goes_on(self) -> str:
        """Command line that resumes the run."""
        return again(
            self.study,
            self.database,
            resume=self.plan.run if isinstance(self.study, Replay) else None,
            into=self.into,
        )


class Played(Stored):
    """Report how one part of a replay ended."""

    health: Health
    died: tuple[str, ...] = ()
    """Arms that stopped answering, in that order; one may have come back."""


def job(playing: Playing, opened: OpenPart) -> Job:
    """Return how the calls of one part of a run are made."""
    plan, means, met = playing.plan, playing.means, opened.met
    # `TEXT` is for vLLM, which says its version: other servers may then leave tools
    # out of the prompt. Recorded calls go without: their replies are compared.
    is_recorded = means.load.history == "recorded"
    styles = {}
    for each in playing.endpoints:
        is_text = not is_recorded and met.identities[each.name].version is not None
        tools = TEXT if is_text else {}
        styles[each.name] = speech(each, met.models[each.name], means.request, with_tools=tools)
    raw = means.keep_raw
    return Job(
        run_id=plan.run,
        leg=opened.row.leg,
        seed=plan.seed,
        targets=partial(targets, playing.endpoints),
        styles=styles,
        trace_seed=plan.header.seed,
        block=plan.header.block,
        tokenizer=met.counted or WORD_TOKENS,
        renews_keys=any(each.key_command is not None for each in playing.endpoints),
        raw=None if raw is None else Raw(folder=opened.writer.path.parent, which=raw),
    )


class ReplayPart:
    """Play one process's part of a replay; a signal handler may call `stop`."""

    def __init__(
        self,
        playing: Playing,
        *,
        listener: Listener | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._playing = playing
        self._listener = listener
        self.notice = notice
        """Receives what a reader of the run should know."""
        self._runner: Runner | Crew | None = None
        self._writer: journal.Writer | None = None
        self._task: asyncio.Task[object] | None = None
        self._stops = 0
        self._died: list[str] = []
        self._hopeless: AgentloadError | None = None
        self._own_stops = 0
        self._loaded_s = time.monotonic()

    def stop(self) -> None:
        """Let what is in flight finish; cancel it when asked a second time.

        Before the first call, cancel `play`.
        """
        self._stops += 1
        if self._runner is not None:
            self._runner.stop(drain=self._stops == 1)
        elif self._task is not None and self._stops == 1:
            # A second time would interrupt what ends the servers.
            self._task.cancel()

    async def play(self) -> Played:
        """Play to the end, or to the end of what is in flight after `stop`."""
        self._task = asyncio.current_task()
        playing, plan = self._playing, self._playing.plan
        await look_at(playing.database, notice=self.notice)
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
            first=next((original(play.arm) for play in own if play.pair not in before.done), None),
            check=self._takes,
            is_stopping=self.is_stopping,
            notice=self.notice,
        ) as opened:
            if playing.launching is None:
                for endpoint in playing.endpoints:
                    for row in counter_rows(
                        plan.run, opened.row.leg, endpoint, opened.met.identities[endpoint.name]
                    ):
                        opened.writer.append(row)
            self._writer = opened.writer
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
            goes_on=playing.goes_on,
        )

    def _takes(self, identities: Mapping[str, Identity]) -> None:
        """Warn of turns that are longer than the servers take.

        Raises PlanError where they are many.
        """
        plan = self._playing.plan
        self._playing.met(identities)
        said = too_long(
            plan.header,
            (session for block in plan.blocks for session in block.sessions),
            window(identities.values()),
            may_cut=getattr(self._playing.study, "benchmark", None) is None,
        )
        # For profiles the warning came when they were laid out.
        is_known = any(each.profile for each in self._playing.endpoints)
        if said is not None and not is_known:
            self.notice(f"warning: {said}")

    async def _measure(self, opened: OpenPart, before: Past) -> Health:
        playing, run, leg = self._playing, self._playing.plan.run, opened.row.leg
        sources = {e.name: source(e) for e in playing.endpoints}
        watch = TelemetryWatch(sources, every_s=playing.sample_s, notice=self.notice)

        def write(row: Row) -> None:
            opened.writer.append(row)
            if isinstance(row, BlockRow) and isinstance(self._runner, Runner):
                self._runner.closed(row)

        rounds = Rounds(
            run_id=run,
            leg=leg,
            pair_size=len(playing.plan.arms),
            on_dead=playing.means.on_dead,
            goes_on=playing.goes_on,
            write=write,
            samples=lambda: watch.rows(run_id=run, leg=leg),
        )
        barrier = Barrier(
            rounds=rounds,
            host=self,
            endpoints={e.name: e for e in playing.endpoints},
            before=opened.met.identities,
        )

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
            player = self._alone if playing.means.on is None else self._crew
            self._runner = await player(stack, opened, before, barrier, start)
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(watch.run())
                health = await self._runner.play()
                watching.cancel()
        return health

    async def _alone(
        self,
        stack: AsyncExitStack,
        opened: OpenPart,
        before: Past,
        barrier: Barrier,
        opening: Callable[[Open], Awaitable[None]],
    ) -> Runner:
        """Play from this machine, in this process or from workers."""
        writer, workers = opened.writer, self._playing.means.workers
        journals = () if workers == 1 else worker_journals(writer.path, workers)
        calls = calling(job(self._playing, opened), writer.append, journals=journals)
        return Runner(
            self._playing.plan,
            await stack.enter_async_context(calls),
            barrier,
            leg=RunLeg(number=opened.row.leg, done=before.done, voided=before.lost),
            journal=writer,
            opening=opening,
            listeners=[barrier, *([self._listener] if self._listener else [])],
        )

    async def _crew(
        self,
        stack: AsyncExitStack,
        opened: OpenPart,
        before: Past,
        barrier: Barrier,
        opening: Callable[[Open], Awaitable[None]],
    ) -> "Crew":
        """Play from several nodes, each with a dispatcher and a share of the plan."""
        from agentload.remote.crew import Crew  # late: most runs play from this machine
        from agentload.remote.player import PlayShare
        from agentload.remote.seats import seats

        playing, means = self._playing, self._playing.means
        assert means.on is not None, means
        models = {
            (each.session, turn): said.model
            for block in playing.plan.blocks
            for each in block.sessions
            for turn, said in enumerate(each.turns)
        }

        def called(ended: CallRow) -> None:
            barrier.called(models.get((ended.session, ended.turn)), ended)

        share = PlayShare(
            job=job(playing, opened),
            workers=means.workers,
            done=before.done,
            voided=dict(before.lost),
            folder=None if means.share is None else Path(means.share),
        )
        nodes = seats(means.on, nodes=means.nodes, resume=playing.goes_on)
        return Crew(
            await stack.enter_async_context(nodes),
            playing.plan,
            share,
            barrier,
            write=opened.writer.append,
            ended=called,
            opening=opening,
        )

    async def pair_done(self) -> None:
        """Load now and then what is finished; stop if more pairs would not count either."""
        assert self._writer is not None
        self._writer.sync()
        if time.monotonic() - self._loaded_s >= APART_S:
            await self._load(patience_s=BETWEEN_S)
            self._loaded_s = time.monotonic()
        is_asked = self._playing.stops_late and not self._stops
        if is_asked and isinstance(self._runner, Runner) and self._runner.health().is_late:
            self._own_stops = 1
            self.stop()

    def is_stopping(self) -> bool:
        """Tell whether nothing more is to be played."""
        return self._stops > 0

    def refused(self, why: str) -> None:
        """Give up on servers that take no call of ours."""
        first = TOOLS if "tool choice" in why else "fix that"
        self._give_up(EndpointError(why, hint=f"{first}, then: {self._playing.goes_on}"))

    def invalid(self, why: str) -> None:
        """Give up where no pair will be valid."""
        self._give_up(EvidenceError(why, hint=f"fix that, then: {self._playing.goes_on}"))

    def _give_up(self, error: AgentloadError) -> None:
        if self._hopeless is None and not self._stops:
            self._hopeless = error
            self.stop()

    def lost(self, arm: str, why: str) -> None:
        """Do as the study says with an arm that has stopped answering."""
        assert self._runner is not None
        self._died.append(arm)
        gone = f"{arm} stopped answering ({why})"
        match self._playing.means.on_dead:
            case "wait":
                self.notice(f"{gone}: waiting for it, then its pair is played again")
                self._runner.lose(arm, for_good=False)
            case "skip":
                self.notice(f"{gone}: going on without it")
                self._runner.lose(arm, for_good=True)
            case "stop":
                self.notice(f"{gone}: stopping")
                self.stop()

    async def _load(self, *, patience_s: float) -> str | None:
        """Load what is written; another request to stop ends the wait for the database."""
        playing, stops = self._playing, self._stops
        return await load_run(
            playing.plan.run,
            playing.database,
            patience_s=patience_s,
            is_stopping=lambda: self._stops > stops,
            notice=self.notice,
        )
