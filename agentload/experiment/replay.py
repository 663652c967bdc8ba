"""Replay a trace against live endpoints: ask who they are, play the plan, write everything down, load what is finished."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify_all, served_model
from agentload.errors import PlanError, StoreError
from agentload.experiment.barrier import Barrier
from agentload.experiment.record import arm_row, leg_row, run_row
from agentload.live.caller import PromptCaller, Speech
from agentload.live.health import Health
from agentload.live.runner import Listener, Runner
from agentload.live.target import Target
from agentload.live.tls import context
from agentload.live.wire import Wire
from agentload.model.plan import Plan
from agentload.model.rows import BlockRow, FingerprintRow, Kind, LegRow, Row, RunRow
from agentload.prompts.renderer import Renderer
from agentload.store import journal
from agentload.store.loader import load
from agentload.store.places import journal_folder, journals


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Everything that a live replay needs."""

    plan: Plan
    endpoints: tuple[Endpoint, ...]
    database: Path
    trace_hash: str
    command: str
    kind: Kind = "measured"
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How a replay went."""

    run_id: str
    leg: int
    health: Health
    was_stopped: bool
    is_loaded: bool
    load_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What earlier legs of a run left in its journals."""

    legs: int
    done: frozenset[int]
    lost: Mapping[int, int]
    """How often a pair was begun and not finished."""
    run: RunRow | None


def past(database: Path, run_id: str, *, pair_size: int) -> Past:
    """Read the journals of a run: which pairs are whole, which were begun in vain."""
    rows = [row for path in journals(database, run_id) for row in journal.read(path)]
    blocks = [row for row in rows if isinstance(row, BlockRow)]
    whole = Counter((row.pair, row.salt) for row in blocks if row.void is None)
    done = frozenset(pair for (pair, _), count in whole.items() if count == pair_size)
    salts = {(getattr(row, "pair", None), getattr(row, "salt", None)) for row in blocks}
    lost = Counter(pair for pair, _ in salts if isinstance(pair, int) and pair not in done)
    return Past(
        legs=max((row.leg for row in rows if isinstance(row, LegRow)), default=0),
        done=done,
        lost=lost,
        run=next((row for row in rows if isinstance(row, RunRow)), None),
    )


class Session:
    """One leg of a replay; `stop` may be called from a signal handler."""

    def __init__(self, replay: Replay, *, listener: Listener | None = None, notice: Callable[[str], None] = lambda _: None) -> None:
        self._replay = replay
        self._listener = listener
        self._notice = notice
        self._runner: Runner | None = None
        self._stops = 0

    def stop(self) -> None:
        """Drain what is in flight; when asked a second time, cancel it."""
        self._stops += 1
        if self._runner is not None:
            self._runner.stop(drain=self._stops == 1)

    async def play(self) -> Played:
        """Play to the end, or to the end of what is in flight after `stop`."""
        replay, plan = self._replay, self._replay.plan
        identities = dict(zip(plan.arms, await identify_all(replay.endpoints), strict=True))
        models = {e.name: served_model(e, identities[e.name]) for e in replay.endpoints}
        before = past(replay.database, plan.run, pair_size=len(plan.arms))
        leg = before.legs + 1
        folder = journal_folder(replay.database, plan.run)
        folder.mkdir(parents=True, exist_ok=True)
        writer = journal.Writer(folder / f"leg{leg:03}.journal")
        started = leg_row(plan.run, leg)
        try:
            self._open(writer, before, started, identities, models)
            async with Wire([_target(e) for e in replay.endpoints]) as wire:
                self._runner = self._joined(wire, writer, before=before, leg=leg, identities=identities, models=models)
                if self._stops:
                    self._runner.stop()
                health = await self._runner.play()
            status: Literal["stopped", "done"] = "stopped" if self._stops else "done"
            writer.append(replace(started, ended_ns=time.monotonic_ns(), status=status, health=json.dumps(asdict(health))))
        finally:
            writer.close()
        error = await self._load()
        return Played(run_id=plan.run, leg=leg, health=health, was_stopped=bool(self._stops), is_loaded=error is None, load_error=error)

    def _open(
        self, writer: journal.Writer, before: Past, started: LegRow, identities: Mapping[str, Identity], models: Mapping[str, str]
    ) -> None:
        replay, plan = self._replay, self._replay.plan
        rows: list[Row] = [started]
        if before.run is None:
            shared = {*models.values()}
            rows.append(
                run_row(
                    plan,
                    kind=replay.kind,
                    name=plan.header.name,
                    trace_hash=replay.trace_hash,
                    model=shared.pop() if len(shared) == 1 else None,
                    created_ns=time.time_ns(),
                    command=replay.command,
                    settings=replay.settings,
                )
            )
            rows += [arm_row(plan.run, position, e, models[e.name]) for position, e in enumerate(replay.endpoints)]
        elif before.run.trace_hash != replay.trace_hash:
            raise PlanError(f"run {plan.run} played another trace", hint="resume it with the trace that it began with")
        for name, identity in identities.items():
            rows.append(
                FingerprintRow(
                    run_id=plan.run,
                    leg=started.leg,
                    arm=name,
                    at_ns=time.monotonic_ns(),
                    moment="before",
                    round=0,
                    facts=json.dumps(identity.facts(), sort_keys=True),
                )
            )
        for row in rows:
            writer.append(row)
        writer.flush()

    def _joined(
        self, wire: Wire, writer: journal.Writer, *, before: Past, leg: int, identities: Mapping[str, Identity], models: Mapping[str, str]
    ) -> Runner:
        replay, plan = self._replay, self._replay.plan
        speech = {e.name: Speech(model=models[e.name], aliases=e.aliases, extra=e.extra_body) for e in replay.endpoints}

        async def pair_done(_: int) -> None:
            writer.sync()
            await self._load()

        barrier = Barrier(
            run_id=plan.run,
            leg=leg,
            endpoints={e.name: e for e in replay.endpoints},
            before=identities,
            pair_size=len(plan.arms),
            write=writer.append,
            pair_done=pair_done,
        )
        return Runner(
            plan,
            PromptCaller(wire, speech, Renderer(seed=plan.header.seed, block=plan.header.block), seed=plan.seed),
            barrier,
            leg=leg,
            write=writer.append,
            flush=lambda: writer.flush_if_due(time.monotonic_ns()),
            listener=self._listener,
            done=before.done,
            voided=before.lost,
        )

    async def _load(self) -> str | None:
        try:
            await asyncio.to_thread(load, journals(self._replay.database, self._replay.plan.run), self._replay.database)
        except StoreError as error:
            self._notice(f"not loaded: {error.message}")
            return error.message
        return None


def _target(endpoint: Endpoint) -> Target:
    return Target(
        arm=endpoint.name,
        url=endpoint.url,
        api_key=endpoint.key(),
        headers=dict(endpoint.headers),
        tls=context(authority=endpoint.ca_file) if endpoint.ca_file else None,
    )
