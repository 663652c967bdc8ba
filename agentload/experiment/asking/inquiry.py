"""Put questions to arms that run now, grade what they say, and stop where one answers no more."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Final

from agentload.ask.asker import Answered, Asker, Failed
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, served_model
from agentload.errors import StoreError
from agentload.experiment.asking.evaluation import Eval, Listener
from agentload.experiment.asking.past import Asked as AskedOf
from agentload.experiment.asking.past import asked_of
from agentload.experiment.asking.plan import Question
from agentload.experiment.asking.record import answer_row, request_id
from agentload.experiment.asking.servers import voided
from agentload.model.rows import AnswerRow
from agentload.store import journal

FAILURES: Final = 16
"""So many failures of one arm in a row, none answered in between, end the leg: nothing but failures would follow."""


class Inquiry:
    """The questions of one leg, until all are asked, *stops* is set, or an arm is dead."""

    def __init__(self, evaluation: Eval, *, stops: asyncio.Event, listener: Listener) -> None:
        self._eval = evaluation
        self._listener = listener
        self._stops = stops
        self._failures: Counter[str] = Counter()
        self._given: defaultdict[str, list[AnswerRow]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.dead: str | None = None
        self.said: dict[AskedOf, Answered] = {}
        """What the reference answered, where it does not run beside the others."""

    def take_back(self, arm: str, why: str) -> Iterator[AnswerRow]:
        """Yield what an arm answered as not answered."""
        for row in voided(self._given[arm], why):
            self.counts["answered"] -= 1
            self.counts["failed"] += 1
            yield row

    async def ask(
        self, served: Sequence[Endpoint], questions: tuple[Question, ...], identities: Mapping[str, Identity], writer: journal.Writer
    ) -> int:
        """Ask arms that run side by side, and write down what they answer; return how many questions were not asked."""
        made = self._eval
        waiting: Iterator[Question] = iter(questions)
        async with AsyncExitStack() as open_:
            askers = {e.name: await open_.enter_async_context(Asker(e, served_model(e, identities[e.name]))) for e in served}

            async def work() -> None:
                while not self._stops.is_set() and (question := next(waiting, None)) is not None:
                    for row in await self._one(question, askers):
                        writer.append(row)
                    writer.flush_if_due(time.monotonic_ns())

            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(made.concurrency):
                        tasks.create_task(work())
            except* StoreError as group:  # all workers write to one journal: the first refusal tells all
                raise group.exceptions[0] from None
        return sum(1 for _ in waiting)

    async def _one(self, question: Question, askers: Mapping[str, Asker]) -> list[AnswerRow]:
        made = self._eval
        item = made.asked.item(question)
        # The order of the arms is drawn, so that none is always asked with a warmer machine.
        order = sorted(askers, key=lambda arm: Random(f"{made.seed} {question} {arm}").random())
        replies: dict[str, Answered | Failed] = {}
        for arm in order:
            replies[arm] = await askers[arm].ask(
                item.messages,
                tools=item.tools,
                output_tokens=item.output_tokens + made.thinking_tokens,
                seed=made.seed + question.repetition,
                request_id=request_id(made.run, question, arm),
            )
            self._watch(arm, replies[arm])
        reference = made.endpoints[0].name
        theirs = replies.get(reference) or self.said.get(asked_of(question))
        if made.launching is not None and reference in askers and isinstance(theirs, Answered):
            self.said[asked_of(question)] = theirs  # the others are asked when it runs no more
        rows = []
        for arm in askers:
            reply, compared = replies[arm], theirs if arm != reference and isinstance(theirs, Answered) else None
            grade = made.asked.grade(reply.text, question, item) if isinstance(reply, Answered) else None
            rows.append(answer_row(made.run, question, arm, reply=reply, grade=grade, reference=compared))
        for row in rows:
            self.counts["failed" if row.right is None else "answered"] += 1
            if row.right is not None:
                self._given[row.arm].append(row)
            self._listener(question, row.arm, row)
        return rows

    def _watch(self, arm: str, reply: Answered | Failed) -> None:
        self._failures[arm] = self._failures[arm] + 1 if isinstance(reply, Failed) else 0
        if self._failures[arm] >= FAILURES and self.dead is None:
            self.dead = arm
            self._stops.set()
