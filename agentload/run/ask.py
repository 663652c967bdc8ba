"""Play a leg of an evaluation: meet the servers, ask every arm the same questions, see them again, load what was answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Literal

import msgspec

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import changed
from agentload.endpoints.identity import Identity, identify_all, kind_of
from agentload.errors import EndpointError, StoreError
from agentload.model.controls import copied, is_control
from agentload.model.rows import LegRow, Row
from agentload.run.inquiry import FAILURES, Asked, Eval, Inquiry, Listener, seen_again
from agentload.run.meeting import caveats
from agentload.run.past import Given, asked_of, check_joined, check_same_questions, given, replies
from agentload.run.questions import Question
from agentload.run.record import described_run, fingerprint, leg_row
from agentload.run.relay import Launching, Relay
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.loader import load
from agentload.store.places import journal_folder, journals


class Leg:
    """One process's part of an evaluation; `stop` may be called from a signal handler."""

    def __init__(self, evaluation: Eval, *, listener: Listener = lambda *_: None, notice: Callable[[str], None] = lambda _: None) -> None:
        self._eval = evaluation
        self._notice = notice
        self._stops = asyncio.Event()
        self._inquiry = Inquiry(evaluation, stops=self._stops, listener=listener)
        self._changed: dict[str, str] = {}
        """What arms became other servers by while they were asked."""

    def stop(self) -> None:
        """Ask nothing more; what is in flight comes to its end."""
        self._stops.set()

    async def play(self) -> Asked:
        """Ask all that is left. Raises EndpointError when an arm has stopped answering; what was answered is stored."""
        made = self._eval
        if made.database.exists():
            with reading(made.database):  # one that cannot take the rows is better known now than after an hour
                pass
        async with AsyncExitStack() as stack:
            relay = None if made.launching is None else await stack.enter_async_context(self._relay(made.launching))
            identities = await self._identities(relay)
            before = self._before(identities)
            told = self._caveats(identities, before)
            folder = journal_folder(made.database, made.run)
            folder.mkdir(parents=True, exist_ok=True)
            leg = leg_row(made.run, before.legs + 1)
            name = f"{'answers' if made.goes_on == 'join' else 'leg'}{leg.leg:03}.journal"
            writer = stack.enter_context(journal.Writer(folder / name))
            for row in self._opening(leg, before, identities, told):
                writer.append(row)
            writer.flush()
            if relay is None:
                left = await self._inquiry.ask(made.endpoints, self._open(before, identities), identities, writer)
                await self._look_again(leg.leg, made.endpoints, identities, writer)
            else:
                left = await self._ask_in_turn(relay, leg.leg, writer)
            is_failed = self._inquiry.dead is not None or bool(self._changed)
            status: Literal["failed", "stopped", "done"] = "failed" if is_failed else "stopped" if left else "done"
            ended: LegRow = replace(leg, ended_ns=time.monotonic_ns(), status=status)
            if made.goes_on != "join":
                writer.append(ended)
        error = await self._load()
        if self._inquiry.dead is not None:
            raise EndpointError(
                f"{self._inquiry.dead} failed {FAILURES} questions in a row; what was answered is stored",
                hint=f"go on with: {made.goes_on_by}",
            )
        if self._changed:
            raise EndpointError(
                "; ".join(f"{arm} changed while it was asked: {what}" for arm, what in self._changed.items())
                + "; what it answered meanwhile does not count",
                hint=f"start it as it was, then: {made.goes_on_by}",
            )
        counts = self._inquiry.counts
        return Asked(run_id=made.run, answered=counts["answered"], failed=counts["failed"], left=left, load_error=error)

    def _relay(self, launching: Launching) -> Relay:
        endpoints = {e.name: e for e in self._eval.endpoints}
        return Relay(endpoints, launching, is_forced=self._eval.study.servers.force, is_stopping=self._stops.is_set, notice=self._notice)

    async def _identities(self, relay: Relay | None) -> dict[str, Identity]:
        """Ask every server who it is; of those that are started in turn, the first to be asked comes last, and stays.

        A run that is joined has met them: nothing is started twice for it.
        """
        made = self._eval
        if relay is None:
            return dict(zip((e.name for e in made.endpoints), await identify_all(made.endpoints), strict=True))
        if made.goes_on == "join":
            return {}
        met = {e.name: await relay.meet(e.name) for e in reversed(made.endpoints) if not is_control(e.name)}
        return {e.name: met[copied(e.name)] for e in made.endpoints}

    async def _ask_in_turn(self, relay: Relay, leg: int, writer: journal.Writer) -> int:
        """Start one server after the other and ask it all that it has not answered."""
        made, left = self._eval, 0
        for endpoint in made.endpoints:
            before = given(made.database, made.run, (endpoint.name,))
            if not self._open(before, {}):
                continue
            if not self._stops.is_set():
                up = await relay.up(endpoint.name)
                identities = {endpoint.name: up.identity}
                if made.goes_on == "join":  # nobody was met before
                    self._caveats(identities, self._before(identities))
                writer.append(fingerprint(made.run, leg, endpoint.name, up.identity, moment="before"))
                self._inquiry.said = self._inquiry.said or replies(made.database, made.run, made.endpoints[0].name)
                left += await self._inquiry.ask((endpoint,), self._open(before, identities), identities, writer)
                await self._look_again(leg, (up.endpoint,), identities, writer)
                writer.flush()
            else:
                left += len(self._open(before, {}))
        return left

    def _caveats(self, identities: Mapping[str, Identity], before: Given) -> tuple[str, ...]:
        """Stop where a server is not what its arm should be, or was in the run that is gone on with; tell everything else."""
        asked = [e for e in self._eval.endpoints if e.name in identities]
        return caveats(asked, identities, before=before.began_as, is_forced=self._eval.study.servers.force, notice=self._notice)

    async def _look_again(self, leg: int, asked: Sequence[Endpoint], identities: Mapping[str, Identity], writer: journal.Writer) -> None:
        """Note who the servers are now; what one that became another answered is void."""
        for arm, now in (await seen_again(asked, identities, notice=self._notice)).items():
            writer.append(fingerprint(self._eval.run, leg, arm, now, moment="after"))
            if differs := changed(identities[arm].facts(), now.facts()):
                self._changed[arm] = ", ".join(differs)
                for row in self._inquiry.take_back(arm, f"{arm} changed meanwhile"):
                    writer.append(row)

    def _before(self, identities: Mapping[str, Identity]) -> Given:
        made = self._eval
        arms = tuple(e.name for e in made.endpoints)
        before = given(made.database, made.run, arms)
        match made.goes_on:
            case "resume":
                check_same_questions(before, run_id=made.run, study=made.study, found=made.notes, database=made.database)
            case "join":
                kind = kind_of(identities) if identities else None
                check_joined(before, run_id=made.run, arms=arms, kind=kind, database=made.database)
            case "new":
                pass
        return before

    def _open(self, before: Given, identities: Mapping[str, Identity]) -> tuple[Question, ...]:
        """Return the questions that are left and that every arm has room for."""
        said = [each.max_model_len for each in identities.values()] + [e.expect.get("max_model_len") for e in self._eval.endpoints]
        longest = min((length for length in said if isinstance(length, int)), default=None)
        asked = self._eval.asked.questions()
        fit = [each for each in asked if longest is None or each.context <= longest]
        if len(fit) < len(asked) and identities:
            self._notice(
                f"{len(asked) - len(fit):,} questions are longer than {longest:,} tokens, the shortest window of the arms: left out"
            )
        return tuple(each for each in fit if asked_of(each) not in before.answered)

    def _opening(self, leg: LegRow, before: Given, identities: Mapping[str, Identity], told: tuple[str, ...]) -> list[Row]:
        made = self._eval
        seen = [fingerprint(made.run, leg.leg, arm, identity, moment="before") for arm, identity in identities.items()]
        if made.goes_on == "join":
            return [*seen]
        if before.run is not None:
            return [leg, *seen]
        found = msgspec.structs.replace(made.notes, caveats=told)
        described = described_run(made.run, made.study, made.endpoints, identities, command=made.command, notes=found)
        return [leg, *described, *seen]

    async def _load(self) -> str | None:
        try:
            await asyncio.to_thread(load, journals(self._eval.database, self._eval.run), self._eval.database)
        except StoreError as error:
            self._notice(f"not loaded yet: {error.message}")
            return error.message
        return None
