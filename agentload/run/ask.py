"""Carry out a part of an evaluation: meet the servers, ask every
arm the same questions, grade what they say, see them again.

A part ends early where one of them answers no more.
"""

import asyncio
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby, takewhile
from random import Random
from typing import Final, Literal

from agentload.ask.asker import Answered, Asker, Failed
from agentload.dispatch.garbage import garbage
from agentload.dispatch.naming import named
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import changed
from agentload.endpoints.identity import Identity, identify, kind_of, served_model
from agentload.errors import EndpointError, StoreError
from agentload.model.rows import AnswerRow
from agentload.run.known import remembered
from agentload.run.part import Work, caveats, loaded, looked_at, part
from agentload.run.past import Asked as AskedOf
from agentload.run.past import Past, asked_of, check_joined, check_same_questions, given, replies
from agentload.run.questions import Question, Questions
from agentload.run.record import again, fingerprint
from agentload.run.relay import Relay
from agentload.run.servers import window
from agentload.store import journal
from agentload.study.kinds import Ask
from agentload.study.stored import Notes
from agentload.tasks import Grade

FAILURES: Final = 16
"""So many failures of one arm in a row, none answered in
between, end the leg: nothing but failures would follow.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eval(Work):
    """Everything that an evaluation needs; servers that are
    started in turn are each asked all of its questions.
    """

    run: str
    study: Ask
    asked: Questions
    notes: Notes
    """What was found out before anybody was asked: what lengths rest on, which arms there are."""
    goes_on: Literal["new", "resume", "join"] = "new"
    """Join: add the answers to a run of another verb, on the same arms."""

    @property
    def command(self) -> str:
        """Return the command line that asks it all."""
        return again(self.study, self.database, into=self.run if self.goes_on == "join" else None)

    @property
    def goes_on_by(self) -> str:
        """Return the command line that asks what is left."""
        return (
            self.command
            if self.goes_on == "join"
            else again(self.study, self.database, resume=self.run)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a leg went."""

    run_id: str
    answered: int
    failed: int
    left: int
    """Questions that were not asked."""
    load_error: str | None = None


Listener = Callable[[Question, str, AnswerRow], None]


@dataclass(slots=True, kw_only=True)
class Inquiry:
    """The questions of one part, until all are asked, *stops* is set, or an arm is dead."""

    evaluation: Eval
    stops: asyncio.Event
    listener: Listener
    counts: Counter[str] = field(init=False, default_factory=Counter)
    dead: str | None = field(init=False, default=None)
    said: dict[AskedOf, Answered] = field(init=False, default_factory=dict)
    """What the reference answered, where it does not run beside the others."""
    _failures: Counter[str] = field(init=False, default_factory=Counter)
    _given: defaultdict[str, list[AnswerRow]] = field(
        init=False, default_factory=lambda: defaultdict(list)
    )
    _working: Sequence[asyncio.Task[None]] = field(init=False, default=())

    def take_back(self, arm: str, why: str) -> Iterator[AnswerRow]:
        """Yield what an arm answered as not answered."""
        for row in voided(self._given[arm], why):
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
        """Ask arms that run side by side, and write down what
        they answer; return how many questions were not asked.
        """
        made = self.evaluation
        # Those that share a context follow each other: the
        # first has it read, the others find it in the cache.
        waiting, asked = (
            iter([tuple(group) for _, group in groupby(questions, key=lambda each: each.behind)]),
            0,
        )
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
            except* (
                StoreError
            ) as group:  # all workers write to one journal: the first refusal tells all
                raise group.exceptions[0] from None
        return len(questions) - asked

    def give_up(self) -> None:
        """Leave the questions in flight unanswered."""
        for task in self._working:
            task.cancel()

    async def _one(self, question: Question, askers: Mapping[str, Asker]) -> list[AnswerRow]:
        made = self.evaluation
        item = made.asked.item(question)
        # The order of the arms is drawn, so that none is always asked with a warmer machine.
        order = sorted(
            askers, key=lambda arm: Random(f"{made.study.seed} {question} {arm}").random()
        )
        replies: dict[str, Answered | Failed] = {}
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
        if made.launching is not None and reference in askers and isinstance(theirs, Answered):
            self.said[asked_of(question)] = theirs  # the others are asked when it runs no more
        rows = []
        for arm in askers:
            reply, compared = (
                replies[arm],
                theirs if arm != reference and isinstance(theirs, Answered) else None,
            )
            grade = (
                made.asked.grade(reply.text, question, item)
                if isinstance(reply, Answered)
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

    def _watch(self, arm: str, reply: Answered | Failed) -> None:
        self._failures[arm] = self._failures[arm] + 1 if isinstance(reply, Failed) else 0
        if self._failures[arm] >= FAILURES and self.dead is None:
            self.dead = arm
            self.stops.set()


async def seen_again(
    endpoints: Sequence[Endpoint], known: Mapping[str, Identity], *, notice: Callable[[str], None]
) -> dict[str, Identity]:
    """Ask servers once more who they are; one that does not answer is told of, and left out."""

    async def look(endpoint: Endpoint) -> Identity | None:
        before = known[endpoint.name]
        try:
            return remembered(await identify(endpoint, known=before), before)
        except EndpointError as error:
            notice(f"caveat: who {endpoint.name} is was not asked again: {error.message}")
            return None

    now = await asyncio.gather(*map(look, endpoints))
    return {
        endpoint.name: identity
        for endpoint, identity in zip(endpoints, now, strict=True)
        if identity is not None
    }


def voided(rows: Iterable[AnswerRow], why: str) -> Iterator[AnswerRow]:
    """Return answers as questions that nobody answered: they are asked again."""
    for row in rows:
        yield replace(row, score=None, right=None, answer=None, signals=failure(Failed(error=why)))


def signals(reply: Answered, reference: Answered | None) -> str:
    """Return what is stored beside an answer, as JSON; *reference*
    is None for the reference arm itself and where it failed.
    """
    said = reply.text
    seen: dict[str, object] = {
        "finish_reason": reply.finish_reason,
        "prompt_tokens": reply.prompt_tokens,
        "output_tokens": reply.output_tokens,
        "repeated_4grams": repeated_4grams(said.split()),
        "non_printing": non_printing(said),
        "garbage": garbage(said),
        "nan_logprobs": None if reply.logprobs is None else sum(map(math.isnan, reply.logprobs)),
    }
    if reference is not None:
        mine, theirs, unit = _units(reply, reference)
        same = agreement(mine, theirs)
        seen |= {
            "agreement": same,
            "agreement_unit": unit,
            "agreement_of": max(len(mine), len(theirs)),
        }
        seen |= {"length_ratio": round(len(mine) / len(theirs), 4) if theirs else None}
        seen |= {"logprob_delta": _delta(reply, reference, same)}
    return json.dumps(
        {name: value for name, value in seen.items() if value is not None}, sort_keys=True
    )


def failure(failed: Failed) -> str:
    """Return what is stored in the place of an answer that never came."""
    return json.dumps(
        {
            "error": failed.error,
            **({} if failed.http_status is None else {"http_status": failed.http_status}),
        },
        sort_keys=True,
    )


def agreement(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the leading pieces that two answers share.

    Greedy texts part at near ties, so equality says little, and this more.
    """
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def repeated_4grams(words: Sequence[str]) -> float | None:
    """Return the share of runs of four words that came before; None where there is no such run."""
    runs = [tuple(words[at : at + 4]) for at in range(len(words) - 3)]
    return round(1 - len(set(runs)) / len(runs), 4) if runs else None


def non_printing(text: str) -> float | None:
    """Return the share of signs that no text shows: control and replacement characters."""
    return (
        round(
            sum(not (sign.isprintable() or sign.isspace()) or sign == "\ufffd" for sign in text)
            / len(text),
            4,
        )
        if text
        else None
    )


def _units(reply: Answered, reference: Answered) -> tuple[Sequence[str], Sequence[str], str]:
    if reply.tokens is not None and reference.tokens is not None:
        return reply.tokens, reference.tokens, "token"
    return reply.text.split(), reference.text.split(), "word"


def _delta(reply: Answered, reference: Answered, same: int) -> float | None:
    """Return the mean absolute difference of the log probabilities of the tokens that both said."""
    if reply.logprobs is None or reference.logprobs is None or not same:
        return None
    apart = [
        abs(a - b) for a, b in zip(reply.logprobs[:same], reference.logprobs[:same], strict=True)
    ]
    mean = sum(apart) / same
    return None if math.isnan(mean) else round(mean, 6)


def answer_row(
    run: str,
    question: Question,
    arm: str,
    *,
    reply: Answered | Failed,
    grade: Grade | None,
    reference: Answered | None,
) -> AnswerRow:
    """Say what an arm answered; *reference* is what the arm that it is held against answered."""
    return AnswerRow(
        run_id=run,
        arm=arm,
        task=question.task,
        item=question.item,
        context_tokens=question.context,
        depth=question.depth,
        repetition=question.repetition,
        score=None if grade is None else grade.score,
        right=None if grade is None else grade.right,
        answer=reply.text if isinstance(reply, Answered) else None,
        request_id=request_id(run, question, arm),
        signals=signals(reply, reference) if isinstance(reply, Answered) else failure(reply),
    )


def request_id(run: str, question: Question, arm: str) -> str:
    """Name the request by which an arm is asked a question."""
    item = question.item if question.part is None else f"{question.item}.{question.part}"
    return named(run, arm, question.task, *map(str, (question.context, item, question.repetition)))


class Leg:
    """One process's part of an evaluation; `stop` may be called from a signal handler."""

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
        """What arms became other servers by while they were asked."""

    def stop(self) -> None:
        """Ask nothing more; what is in flight comes to
        its end, or is given up when asked a second time.
        """
        if self._stops.is_set():
            self._inquiry.give_up()
        self._stops.set()

    async def play(self) -> Asked:
        """Ask all that is left. Raises EndpointError when an
        arm has stopped answering; what was answered is stored.
        """
        made = self._eval
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
                left = await self._inquiry.ask(
                    made.endpoints, self._open(before, identities), identities, writer
                )
                await self._look_again(opened.row.leg, made.endpoints, identities, writer)
            else:
                left = await self._ask_in_turn(opened.relay, before, opened.row.leg, writer)
            is_failed = self._inquiry.dead is not None or bool(self._changed)
            opened.row = replace(
                opened.row, status="failed" if is_failed else "stopped" if left else "done"
            )
        error = await loaded(made.run, made.database, notice=self._notice)
        if self._inquiry.dead is not None:
            raise EndpointError(
                f"{self._inquiry.dead} failed {FAILURES} questions in a row; what was "
                "answered is stored",
                hint=f"go on with: {made.goes_on_by}",
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
        return Asked(
            run_id=made.run,
            answered=counts["answered"],
            failed=counts["failed"],
            left=left,
            load_error=error,
        )

    async def _ask_in_turn(
        self, relay: Relay, before: Past, leg: int, writer: journal.Writer
    ) -> int:
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
                    caveats(
                        (endpoint,),
                        identities,
                        before=before.began_as,
                        is_forced=made.is_forced,
                        notice=self._notice,
                    )
                writer.append(
                    fingerprint(made.run, leg, endpoint.name, up.identity, moment="before")
                )
                self._inquiry.said = self._inquiry.said or replies(
                    made.database, made.run, made.endpoints[0].name
                )
                left += await self._inquiry.ask(
                    (endpoint,), self._open(own, identities), identities, writer
                )
                await self._look_again(leg, (up.endpoint,), identities, writer)
                writer.flush()
            else:
                left += len(self._open(own, {}))
        return left

    async def _look_again(
        self,
        leg: int,
        asked: Sequence[Endpoint],
        identities: Mapping[str, Identity],
        writer: journal.Writer,
    ) -> None:
        """Note who the servers are now; what one that became another answered is void."""
        for arm, now in (await seen_again(asked, identities, notice=self._notice)).items():
            writer.append(fingerprint(self._eval.run, leg, arm, now, moment="after"))
            if differs := changed(identities[arm].facts(), now.facts()):
                self._changed[arm] = ", ".join(differs)
                for row in self._inquiry.take_back(arm, f"{arm} changed meanwhile"):
                    writer.append(row)

    def _check(self, before: Past, identities: Mapping[str, Identity]) -> None:
        """Raise PlanError unless these questions, put to
        these servers, go on with the run or may join it.
        """
        made = self._eval
        match made.goes_on:
            case "resume":
                check_same_questions(
                    before,
                    run_id=made.run,
                    study=made.study,
                    found=made.notes,
                    database=made.database,
                )
            case "join":
                kind, arms = (
                    kind_of(identities) if identities else None,
                    tuple(each.name for each in made.endpoints),
                )
                check_joined(before, run_id=made.run, arms=arms, kind=kind, database=made.database)
            case "new":
                pass

    def _open(self, before: Past, identities: Mapping[str, Identity]) -> tuple[Question, ...]:
        """Return the questions that are left and that every arm has room for."""
        longest = window(identities.values(), self._eval.endpoints)
        asked = self._eval.asked.order
        fit = [each for each in asked if longest is None or each.context <= longest]
        if len(fit) < len(asked) and identities:
            self._notice(
                f"{len(asked) - len(fit):,} questions are longer than {longest:,} tokens, "
                "the shortest window of the arms: left out"
            )
        return tuple(each for each in fit if asked_of(each) not in before.answered)
