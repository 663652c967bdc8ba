"""Play a leg of an evaluation: meet the servers, ask every arm the same questions, see them again, load what was answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import changed
from agentload.endpoints.identity import Identity, kind_of
from agentload.errors import EndpointError
from agentload.run.inquiry import FAILURES, Asked, Eval, Inquiry, Listener, seen_again
from agentload.run.part import caveats, loaded, looked_at, part
from agentload.run.past import Past, asked_of, check_joined, check_same_questions, given, replies
from agentload.run.questions import Question
from agentload.run.record import fingerprint
from agentload.run.relay import Relay
from agentload.store import journal
from agentload.store.database import WRITER_PATIENCE_S


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
            await looked_at(made.database, notice=self._notice)
        before = given(made.database, made.run, tuple(each.name for each in made.endpoints))
        self._check(before, {})
        async with part(
            made,
            made.run,
            before,
            first=made.endpoints[0].name,
            is_added=made.goes_on == "join",
            check=lambda identities: self._check(before, identities),
            is_stopping=self._stops.is_set,
            notice=self._notice,
        ) as opened:
            identities, writer = opened.met.identities, opened.writer
            if opened.relay is None:
                left = await self._inquiry.ask(made.endpoints, self._open(before, identities), identities, writer)
                await self._look_again(opened.row.leg, made.endpoints, identities, writer)
            else:
                left = await self._ask_in_turn(opened.relay, before, opened.row.leg, writer)
            is_failed = self._inquiry.dead is not None or bool(self._changed)
            opened.row = replace(opened.row, status="failed" if is_failed else "stopped" if left else "done")
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

    async def _ask_in_turn(self, relay: Relay, before: Past, leg: int, writer: journal.Writer) -> int:
        """Start one server after the other and ask it all that it has not answered."""
        made, left = self._eval, 0
        for endpoint in made.endpoints:
            own = given(made.database, made.run, (endpoint.name,))
            if not self._open(own, {}):
                continue
            if not self._stops.is_set():
                up = await relay.up(endpoint.name)
                identities = {endpoint.name: up.identity}
                if made.goes_on == "join":  # nobody was met before
                    self._check(before, identities)
                    caveats((endpoint,), identities, before=before.began_as, is_forced=made.is_forced, notice=self._notice)
                writer.append(fingerprint(made.run, leg, endpoint.name, up.identity, moment="before"))
                self._inquiry.said = self._inquiry.said or replies(made.database, made.run, made.endpoints[0].name)
                left += await self._inquiry.ask((endpoint,), self._open(own, identities), identities, writer)
                await self._look_again(leg, (up.endpoint,), identities, writer)
                writer.flush()
            else:
                left += len(self._open(own, {}))
        return left

    async def _look_again(self, leg: int, asked: Sequence[Endpoint], identities: Mapping[str, Identity], writer: journal.Writer) -> None:
        """Note who the servers are now; what one that became another answered is void."""
        for arm, now in (await seen_again(asked, identities, notice=self._notice)).items():
            writer.append(fingerprint(self._eval.run, leg, arm, now, moment="after"))
            if differs := changed(identities[arm].facts(), now.facts()):
                self._changed[arm] = ", ".join(differs)
                for row in self._inquiry.take_back(arm, f"{arm} changed meanwhile"):
                    writer.append(row)

    def _check(self, before: Past, identities: Mapping[str, Identity]) -> None:
        """Raise PlanError unless these questions, put to these servers, go on with the run or may join it."""
        made = self._eval
        match made.goes_on:
            case "resume":
                check_same_questions(before, run_id=made.run, study=made.study, found=made.notes, database=made.database)
            case "join":
                kind, arms = kind_of(identities) if identities else None, tuple(each.name for each in made.endpoints)
                check_joined(before, run_id=made.run, arms=arms, kind=kind, database=made.database)
            case "new":
                pass

    def _open(self, before: Past, identities: Mapping[str, Identity]) -> tuple[Question, ...]:
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

    async def _load(self) -> str | None:
        made = self._eval
        return await loaded(made.run, made.database, patience_s=WRITER_PATIENCE_S, is_stopping=lambda: False, notice=self._notice)
