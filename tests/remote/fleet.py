"""One plan played by one dispatcher, and by several
nodes at once, against the same emulated servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from agentload.builtin import find
from agentload.dispatch.dispatcher import PlayEnd
from agentload.emulator.profile import parse
from agentload.layout.plan import Scheme, plan
from agentload.live.caller import RequestStyle
from agentload.live.health import Health
from agentload.live.runner import RunLeg, Runner
from agentload.live.station import Job
from agentload.live.target import Target
from agentload.live.workers.node import NodeProcess
from agentload.live.workers.pool import calling
from agentload.model.commands import Open, Settle
from agentload.model.plan import Load, Plan
from agentload.model.profile import Noise
from agentload.model.rows import CallRow, Row
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.remote.crew import Crew
from agentload.remote.player import PlayShare
from agentload.serve.server import ServedArm, ServerOptions, serve
from agentload.virtual.shell import Shell
from tests.live.rows import Rows

ARMS = {
    arm.name: replace(arm, noise=Noise())
    for arm in parse(
        find("profiles", "llama-3.1-8b-h100").read_text(), name="llama-3.1-8b-h100"
    ).arms
    if arm.name in ("bf16", "fp8")
}


def planned(
    sessions: int = 9, *, pairs: int = 1, load: Load | None = None, wait_s: float = 0.05
) -> Plan:
    """Plan the trace on both arms."""
    return plan(
        traced(sessions, wait_s=wait_s),
        tuple(ARMS),
        run="crew",
        scheme=Scheme(pairs=pairs),
        load=load,
    )


def traced(sessions: int = 9, *, wait_s: float = 0.05) -> Trace:
    """Sessions of three turns, every third with a sub-agent;
    all prompts differ, so that no order changes what is cached.
    """
    made: list[Session] = []
    for number in range(sessions):
        name = f"s{number}"
        spawn = (f"{name}.child",) if number % 3 == 0 else ()
        made.append(
            Session(
                session=name,
                workload="code",
                start_s=0.02 * number,
                turns=_turns(name, 3, spawn=spawn, wait_s=wait_s),
            )
        )
        if spawn:
            made.append(
                Session(session=spawn[0], workload="code", turns=_turns(spawn[0], 2, wait_s=wait_s))
            )
    return Trace(header=Header(name="t", seed=3), sessions=tuple(made))


def _turns(
    name: str, count: int, *, spawn: tuple[str, ...] = (), wait_s: float
) -> tuple[Turn, ...]:
    def said(turn: int) -> Segment:
        return Segment(role="user", tokens=60 + 7 * turn, key=f"{name}.{turn}")

    first = Turn(add=(said(0),), output=6, spawn=spawn)
    return (
        first,
        *(
            Turn(add=(said(turn),), output=8, wait="tool", wait_s=wait_s)
            for turn in range(1, count)
        ),
    )


def simulated(seed: int) -> list[Row]:
    """Play the trace in virtual time, with noise: a pure function for other cores."""
    noisy = {name: replace(arm, noise=Noise(sigma=0.05)) for name, arm in ARMS.items()}
    return list(Shell(planned(), noisy, seed=seed).play())


@asynccontextmanager
async def served() -> AsyncIterator[Mapping[str, str]]:
    """Serve every arm; give their URLs."""
    until, all_up = asyncio.Event(), asyncio.Event()
    urls = dict[str, str]()

    def ready(name: str, running: ServedArm) -> None:
        urls[name] = running.url
        if len(urls) == len(ARMS):
            all_up.set()

    async with asyncio.TaskGroup() as tasks:
        for name, arm in ARMS.items():
            tasks.create_task(
                serve(arm, ServerOptions(noise=False), until=until, ready=partial(ready, name))
            )
        await all_up.wait()
        try:
            yield urls
        finally:
            until.set()


def job(made: Plan, urls: Mapping[str, str]) -> Job:
    return Job(
        run_id=made.run,
        leg=1,
        seed=0,
        targets=partial(tuple, [Target(arm=name, url=url) for name, url in urls.items()]),
        styles={name: RequestStyle(model=arm.model.name) for name, arm in ARMS.items()},
        trace_seed=3,
        block=made.header.block,
        tokenizer=WORD_TOKENS,
    )


async def alone(made: Plan, urls: Mapping[str, str]) -> list[CallRow]:
    """Play with one dispatcher in this process."""
    rows = Rows()

    async def barrier(
        settle: Settle, ends: tuple[PlayEnd, ...], *, fault: str | None, again: bool
    ) -> tuple[tuple[int, str], ...]:
        return ()

    async with calling(job(made, urls), rows.append) as caller:
        await Runner(made, caller, barrier, leg=RunLeg(number=1), journal=rows).play()
    return [row for row in rows if isinstance(row, CallRow)]


@dataclass(slots=True)
class Settled:
    """What the barrier was told of one round."""

    settle: Settle
    ends: tuple[PlayEnd, ...]
    fault: str | None
    again: bool


@dataclass(slots=True)
class Fleet:
    """Nodes of this process, and what came of their play."""

    made: Plan
    urls: Mapping[str, str]
    nodes: list[NodeProcess]
    folder: Path | None = None
    rows: list[Row] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    at_barrier: Callable[[Crew], Awaitable[None]] | None = None
    crew: Crew | None = None

    async def play(self, *, workers: int = 1) -> Health:
        async def opening(_: Open) -> None:
            raise AssertionError("servers run all the time")

        self.crew = Crew(
            self.nodes,
            self.made,
            PlayShare(job=job(self.made, self.urls), workers=workers, folder=self.folder),
            self.barrier,
            write=self.rows.append,
            ended=lambda _: None,
            opening=opening,
        )
        try:
            return await self.crew.play()
        finally:
            for node in self.nodes:
                await node.end()

    async def barrier(
        self, settle: Settle, ends: tuple[PlayEnd, ...], *, fault: str | None, again: bool
    ) -> tuple[tuple[int, str], ...]:
        self.settled.append(Settled(settle, ends, fault, again))
        if self.at_barrier is not None and self.crew is not None:
            await self.at_barrier(self.crew)
        return tuple((end.play.pair, fault) for end in ends) if fault is not None and again else ()

    @property
    def calls(self) -> list[CallRow]:
        return [row for row in self.rows if isinstance(row, CallRow)]


def facts(rows: list[CallRow]) -> dict[str, dict[str, object]]:
    """What two plays of one plan have in common, by request."""
    return {
        row.request_id: {
            "call": (row.arm, row.pair, row.block, row.session, row.turn, row.attempt),
            "tokens": (row.context_tokens, row.asked_tokens, row.prompt_tokens, row.output_tokens),
            "end": (row.status, row.http_status, row.finish_reason),
            "prompt": row.prompt_hash,
            "chunks": len(row.chunks) if row.chunks else None,
        }
        for row in rows
    }


def order(rows: list[CallRow]) -> dict[tuple[str, int, str], list[int]]:
    """The turns of each session as they were released."""
    found: dict[tuple[str, int, str], list[int]] = {}
    for row in sorted(rows, key=lambda row: row.released_ns):
        found.setdefault((row.arm, row.pair, row.session), []).append(row.turn)
    return found
