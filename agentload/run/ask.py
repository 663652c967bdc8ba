"""Carry out one part of an evaluation: ask every arm the same questions and grade the answers.

The servers are identified before and after. A part ends early where an arm stops answering.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from random import Random
from typing import Final, Literal

from agentload.ask.asker import Asker, EndpointAnswer, Failed
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import changes
from agentload.endpoints.identity import Identity, identify, kind_of, served_model
from agentload.errors import EndpointError, StoreError
from agentload.model.rows import AnswerRow
from agentload.run.answer_rows import answer_row, request_id, void_answers
from agentload.run.known import with_memory
from agentload.run.part import PartWork, caveats, load_run, look_at, part
from agentload.run.past import (
    Past,
    QuestionKey,
    asked_of,
    check_joined,
    check_same_questions,
    past_answers,
    replies,
    without_answers,
)
from agentload.run.questions import Question, QuestionSet
from agentload.run.record import Stored, again, fingerprint
from agentload.run.relay import Relay
from agentload.run.servers import window
from agentload.store import journal
from agentload.study.kinds import Ask
from agentload.study.stored import Notes

FAILURES: Final = 16
"""Failed questions of one arm in a row that end the part: only failures would follow."""


class Eval(PartWork):
    """Describe an evaluation: its run, study, questions and servers.

    Servers that are started in turn are each asked all of its questions.
    """

    run: str
    study: Ask
    asked: QuestionSet
    notes: Notes
    """Findings before the first question: what lengths rest on, which arms there are."""
    mode: Literal["new", "resume", "join"] = "new"
    """Whether this part begins a run, resumes it, or joins a run of another verb."""

    @property
    def command(self) -> str:
        """Command line that asks all the questions."""
        return again(self.study, self.database, into=self.run if self.mode == "join" else None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(each.name for each in self.endpoints)

    def left(self) -> tuple[Question, ...]:
        """Return the questions that the run has no answers to, and that fit the stated windows."""
        if self.mode == "new":
            return self.fitting({})
        before = past_answers(self.database, self.run, self.names)
        return without_answers(self.fitting({}), before.answered)

    def fitting(self, identities: Mapping[str, Identity]) -> tuple[Question, ...]:
        """Return the questions that fit every window that is known.

        Known are those of *identities* and those that the arms file states.
        """
        longest = window(identities.values(), self.endpoints)
        order = self.asked.order
        return tuple(each for each in order if longest is None or each.context <= longest)

    @property
    def goes_on_by(self) -> str:
        """Command line that asks the remaining questions."""
        if self.mode == "join":
            return self.command
        return again(self.study, self.database, resume=self.run)


class Evaluated(Stored):
    """Report how one part of an evaluation ended."""

    answered: int
    failed: int
    left: int
    """Questions that were not asked."""


Listener = Callable[[Question, str, AnswerRow], None]
"""Receives each answer: its question, its arm and its row."""


@dataclass(slots=True, kw_only=True)
class Inquiry:
    """Ask the questions of one part until all are asked, *stops* is set, or an arm is dead."""

    evaluation: Eval
    stops: asyncio.Event
    listener: Listener
    counts: Counter[str] = field(init=False, default_factory=Counter)
    dead: str | None = field(init=False, default=None)
    """Which arm is dead, and its last error."""
    said: dict[QuestionKey, EndpointAnswer] = field(init=False, default_factory=dict)
    """Answers of the reference, kept where it has ended before the other arms are asked."""
    _failures: Counter[str] = field(init=False, default_factory=Counter)
    _failed: Counter[str] = field(init=False, default_factory=Counter)
    _errors: dict[str, str] = field(init=False, default_factory=dict)
    """The last error of each arm."""
    _given: defaultdict[str, list[AnswerRow]] = field(
        init=False, default_factory=lambda: defaultdict(list)
    )
    _working: Sequence[asyncio.Task[None]] = field(init=False, default=())

    def notice_silence(self) -> None:
        """Call an arm dead that answered none of the questions, few as they were."""
        for arm, error in self._errors.items():
            if not self._given[arm] and self.dead is None:
                self.dead = f"{arm} failed all questions, the last with: {error}"

    def failures(self) -> Iterator[str]:
        """Yield how many questions each arm failed, with its last error."""
        for arm, error in self._errors.items():
            questions = "a question" if self._failed[arm] == 1 else f"{self._failed[arm]} questions"
            yield f"{arm} failed {questions}, the last with: {error}"

    def take_back(self, arm: str, why: str) -> Iterator[AnswerRow]:
        """Yield the answers of an arm as unanswered, with *why* as the error."""
        for row in void_answers(self._given[arm], why):
            self.counts["answered"] -= 1
            self.counts["failed"] += 1
            yield row

    async def ask(
        self,
        served: Sequence[Endpoint],
        questions: tuple[Question, ...],
        identities: Mapping[str, Identity],
        writer: journal.Writer,
    ) -> int:
        """Ask arms side by side, write the answers, and return how many questions are left."""
        made = self.evaluation
        # Questions that share a context follow each other: the
        # first has the server read it, the others hit the cache.
        groups = groupby(questions, key=lambda each: each.behind)
        waiting = iter([tuple(group) for _, group in groups])
        asked = 0
        async with AsyncExitStack() as open_:
            askers = {
                e.name: await open_.enter_async_context(
                    Asker(e, served_model(e, identities[e.name]))
                )
                for e in served
            }

            async def work() -> None:
                nonlocal asked
                while not self.stops.is_set() and (group := next(waiting, None)) is not None:
                    for question in takewhile(lambda _: not self.stops.is_set(), group):
                        for row in await self._one(question, askers):
                            writer.append(row)
                        asked += 1
                        writer.flush_if_due(time.monotonic_ns())

            try:
                async with asyncio.TaskGroup() as tasks:
                    self._working = [
                        tasks.create_task(work()) for _ in range(made.study.concurrency)
                    ]
            except* StoreError as failed:  # workers share a journal: they fail for one reason
                raise failed.exceptions[0] from None
        return len(questions) - asked

    def give_up(self) -> None:
        """Cancel the questions in flight, which stay unanswered."""
        for task in self._working:
            task.cancel()

    async def _one(self, question: Question, askers: Mapping[str, Asker]) -> list[AnswerRow]:
        made = self.evaluation
        item = made.asked.item(question)
        # The order of the arms is drawn, so that none is always asked with a warmer machine.
        order = sorted(
            askers, key=lambda arm: Random(f"{made.study.seed} {question} {arm}").random()
        )
        replies: dict[str, EndpointAnswer | Failed] = {}
        for arm in order:
            replies[arm] = await askers[arm].ask(
                item.messages,
                tools=item.tools,
                output_tokens=item.output_tokens + made.study.thinking_tokens,
                seed=made.study.seed + question.repetition,
                request_id=request_id(made.run, question, arm),
            )
            self._watch(arm, replies[arm])
        reference = made.endpoints[0].name
        theirs = replies.get(reference) or self.said.get(asked_of(question))
        if (
            made.launching is not None
            and reference in askers
            and isinstance(theirs, EndpointAnswer)
        ):
            self.said[asked_of(question)] = theirs  # it has ended when the other arms are asked
        rows = []
        for arm in askers:
            reply = replies[arm]
            compared = theirs if arm != reference and isinstance(theirs, EndpointAnswer) else None
            grade = (
                made.asked.grade(reply.text, question, item)
                if isinstance(reply, EndpointAnswer)
                else None
            )
            rows.append(
                answer_row(made.run, question, arm, reply=reply, grade=grade, reference=compared)
            )
        for row in rows:
            self.counts["failed" if row.right is None else "answered"] += 1
            if row.right is not None:
                self._given[row.arm].append(row)
            self.listener(question, row.arm, row)
        return rows

    def _watch(self, arm: str, reply: EndpointAnswer | Failed) -> None:
        if not isinstance(reply, Failed):
            self._failures[arm] = 0
            return
        self._failures[arm] += 1
        self._failed[arm] += 1
        self._errors[arm] = reply.error
        if self._failures[arm] >= FAILURES and self.dead is None:
            self.dead = f"{arm} failed {FAILURES} questions in a row, the last with: {reply.error}"
            self.stops.set()


async def seen_again(
    endpoints: Sequence[Endpoint], known: Mapping[str, Identity], *, notice: Callable[[str], None]
) -> dict[str, Identity]:
    """Identify servers again; leave out, with a notice, those that do not answer."""

    async def look(endpoint: Endpoint) -> Identity | None:
        before = known[endpoint.name]
        try:
            return with_memory(await identify(endpoint, known=before), before)
        except EndpointError as error:
            notice(f"caveat: who {endpoint.name} is was not asked again: {error.message}")
            return None

    now = await asyncio.gather(*map(look, endpoints))
    return {
        endpoint.name: identity
        for endpoint, identity in zip(endpoints, now, strict=True)
        if identity is not None
    }


class EvalPart:
    """Play one process's part of an evaluation; a signal handler may call `stop`."""

    def __init__(
        self,
        evaluation: Eval,
        *,
        listener: Listener = lambda *_: None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._eval = evaluation
        self._notice = notice
        self._stops = asyncio.Event()
        self._inquiry = Inquiry(evaluation=evaluation, stops=self._stops, listener=listener)
        self._changed: dict[str, str] = {}
        """Changed facts of each arm that became another server while it was asked."""

    def stop(self) -> None:
        """Ask no more questions; those in flight finish, or are cancelled at a second call."""
        if self._stops.is_set():
            self._inquiry.give_up()
        self._stops.set()

    async def play(self) -> Evaluated:
        """Ask all questions that are left; store what is answered.

        Raises EndpointError when an arm stopped answering or became another server meanwhile.
        """
        made = self._eval
        await look_at(made.database, notice=self._notice)
        before = past_answers(made.database, made.run, made.names)
        self._check(before, {})
        async with part(
            made,
            made.run,
            before,
            first=made.endpoints[0].name,
            is_added=made.mode == "join",
            check=lambda identities: self._check(before, identities),
            is_stopping=self._stops.is_set,
            notice=self._notice,
        ) as opened:
            identities, writer = opened.met.identities, opened.writer
            if opened.relay is None:
                left = await self._inquiry.ask(
                    made.endpoints, self._open(before, identities), identities, writer
                )
                await self._look_again(opened.row.leg, made.endpoints, identities, writer)
            else:
                left = await self._ask_in_turn(opened.relay, before, opened.row.leg, writer)
            # A decision joins its questions, and goes on without answers.
            if made.mode == "join" and self._inquiry.dead is None:
                for failure in self._inquiry.failures():
                    self._notice(f"warning: {failure}")
            elif not left and not before.answered:
                self._inquiry.notice_silence()
            opened.row = replace(opened.row, status=self._status(left))
        error = await load_run(made.run, made.database, notice=self._notice)
        if self._inquiry.dead is not None:
            raise EndpointError(
                f"{self._inquiry.dead}; what was answered is stored",
                hint=f"resume with: {made.goes_on_by}",
            )
        if self._changed:
            raise EndpointError(
                "; ".join(
                    f"{arm} changed while it was asked: {what}"
                    for arm, what in self._changed.items()
                )
                + "; what it answered meanwhile does not count",
                hint=f"start it as it was, then: {made.goes_on_by}",
            )
        counts = self._inquiry.counts
        return Evaluated(
            run_id=made.run,
            answered=counts["answered"],
            failed=counts["failed"],
            left=left,
            was_stopped=left > 0,
            load_error=error,
            goes_on=made.goes_on_by,
        )

    def _status(self, left: int) -> Literal["failed", "stopped", "done"]:
        """Say how the part ended, with this many questions unasked."""
        if self._inquiry.dead is not None or self._changed:
            return "failed"
        return "stopped" if left else "done"

    async def _ask_in_turn(
        self, relay: Relay, before: Past, leg: int, writer: journal.Writer
    ) -> int:
        """Start the servers in turn, ask each its open questions, return how many are left."""
        made, left = self._eval, 0
        for endpoint in made.endpoints:
            own = past_answers(made.database, made.run, (endpoint.name,))
            questions = self._open(own, {})
            if not questions:
                continue
            if self._stops.is_set():
                left += len(questions)
                continue
            up = await relay.up(endpoint.name)
            identities = {endpoint.name: up.identity}
            if made.mode == "join":  # a joining part has not met its servers yet
                self._check(before, identities)
                caveats(
                    (endpoint,),
                    identities,
                    before=before.began_as,
                    is_forced=made.is_forced,
                    notice=self._notice,
                )
            writer.append(fingerprint(made.run, leg, endpoint.name, up.identity, moment="before"))
            self._inquiry.said = self._inquiry.said or replies(
                made.database, made.run, made.endpoints[0].name
            )
            left += await self._inquiry.ask(
                (endpoint,), self._open(own, identities), identities, writer
            )
            await self._look_again(leg, (up.endpoint,), identities, writer)
            writer.flush()
        return left

    async def _look_again(
        self,
        leg: int,
        asked: Sequence[Endpoint],
        identities: Mapping[str, Identity],
        writer: journal.Writer,
    ) -> None:
        """Record who the servers are now; take back the answers of one that changed."""
        for arm, now in (await seen_again(asked, identities, notice=self._notice)).items():
            writer.append(fingerprint(self._eval.run, leg, arm, now, moment="after"))
            if differs := changes(identities[arm].facts(), now.facts()):
                self._changed[arm] = ", ".join(differs)
                for row in self._inquiry.take_back(arm, f"{arm} changed meanwhile"):
                    writer.append(row)

    def _check(self, before: Past, identities: Mapping[str, Identity]) -> None:
        """Raise PlanError unless these questions and servers resume the run or may join it."""
        made = self._eval
        match made.mode:
            case "resume":
                check_same_questions(
                    before,
                    run_id=made.run,
                    study=made.study,
                    found=made.notes,
                    database=made.database,
                )
            case "join":
                kind = kind_of(identities) if identities else None
                check_joined(
                    before, run_id=made.run, arms=made.names, kind=kind, database=made.database
                )
            case "new":
                pass

    def _open(self, before: Past, identities: Mapping[str, Identity]) -> tuple[Question, ...]:
        """Return the unanswered questions that fit every window that is known."""
        fit = self._eval.fitting(identities)
        longer = len(self._eval.asked.order) - len(fit)
        if longer and identities:
            longest = window(identities.values(), self._eval.endpoints)
            self._notice(
                f"{longer:,} questions are longer than {longest:,} tokens, "
                "the shortest window of the arms: left out"
            )
        return without_answers(fit, before.answered)
