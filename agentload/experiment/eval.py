"""Ask every arm the same questions, grade what they say, write it down, load it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final, Literal, Protocol

from agentload import __version__
from agentload.ask.asker import Answered, Asker, Failed
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify_all, kind_of, served_model
from agentload.errors import EndpointError, StoreError
from agentload.experiment.eval_past import Past, check_joined, check_resumed, past
from agentload.experiment.eval_plan import Question
from agentload.experiment.eval_signals import failure, signals
from agentload.experiment.record import arm_row, leg_row, resume_command
from agentload.model.rows import AnswerRow, FingerprintRow, Kind, LegRow, Row, RunRow
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.loader import load
from agentload.store.places import journal_folder, journals
from agentload.tasks.item import Grade, Item

FAILURES: Final = 16
"""So many failures of one arm in a row, none answered in between, end the leg: nothing but failures would follow."""


class Questions(Protocol):
    """Where items and grades come from: the tasks of the catalog, or a file of the user's."""

    def questions(self) -> tuple[Question, ...]:
        """Return what is asked, in order."""

    def item(self, question: Question) -> Item:
        """Return the item of a question."""

    def grade(self, answer: str, question: Question, item: Item) -> Grade:
        """Grade an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eval:
    """Everything that an evaluation needs."""

    run: str
    asked: Questions
    endpoints: tuple[Endpoint, ...]
    database: Path
    seed: int
    command: str
    options: Mapping[str, object]
    concurrency: int = 8
    thinking_tokens: int = 0
    """Room for thinking on top of each answer's cap."""
    goes_on: Literal["new", "resume", "join"] = "new"
    """Join: add the answers to a run of another verb, on the same arms."""


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


class Leg:
    """One process's part of an evaluation; `stop` may be called from a signal handler."""

    def __init__(self, evaluation: Eval, *, listener: Listener = lambda *_: None, notice: Callable[[str], None] = lambda _: None) -> None:
        self._eval = evaluation
        self._listener = listener
        self._notice = notice
        self._stops = asyncio.Event()
        self._failures: Counter[str] = Counter()
        self._dead: str | None = None
        self._counts: Counter[str] = Counter()

    def stop(self) -> None:
        """Ask nothing more; what is in flight comes to its end."""
        self._stops.set()

    async def play(self) -> Asked:
        """Ask all that is left. Raises EndpointError when an arm has stopped answering; what was answered is stored."""
        made = self._eval
        if made.database.exists():
            with reading(made.database):  # one that cannot take the rows is better known now than after an hour
                pass
        identities = dict(zip((e.name for e in made.endpoints), await identify_all(made.endpoints), strict=True))
        models = {e.name: served_model(e, identities[e.name]) for e in made.endpoints}
        before = self._before(kind_of(identities))
        questions = self._open(before, identities)
        folder = journal_folder(made.database, made.run)
        folder.mkdir(parents=True, exist_ok=True)
        leg = leg_row(made.run, before.legs + 1)
        with journal.Writer(folder / f"{'answers' if made.goes_on == 'join' else 'leg'}{leg.leg:03}.journal") as writer:
            for row in self._opening(leg, before, identities, models):
                writer.append(row)
            writer.flush()
            left = await self._ask_all(questions, models, writer)
            ended: LegRow = replace(leg, ended_ns=time.monotonic_ns(), status="failed" if self._dead else "stopped" if left else "done")
            if made.goes_on != "join":
                writer.append(ended)
        error = await self._load()
        if self._dead is not None:
            raise EndpointError(
                f"{self._dead} failed {FAILURES} questions in a row; what was answered is stored",
                hint=f"go on with: {resume_command(made.run)}",
            )
        return Asked(run_id=made.run, answered=self._counts["answered"], failed=self._counts["failed"], left=left, load_error=error)

    def _before(self, kind: Kind) -> Past:
        made = self._eval
        arms = tuple(e.name for e in made.endpoints)
        before = past(made.database, made.run, arms)
        match made.goes_on:
            case "resume":
                check_resumed(before, run_id=made.run, options=self._options(), seed=made.seed, database=made.database)
            case "join":
                check_joined(before, run_id=made.run, arms=arms, kind=kind, database=made.database)
            case "new":
                pass
        return before

    def _open(self, before: Past, identities: Mapping[str, Identity]) -> tuple[Question, ...]:
        """Return the questions that are left and that every arm has room for."""
        limits = [each.max_model_len for each in identities.values() if each.max_model_len is not None]
        longest = min(limits, default=None)
        asked = self._eval.asked.questions()
        fit = [each for each in asked if longest is None or each.context <= longest]
        if len(fit) < len(asked):
            self._notice(
                f"{len(asked) - len(fit):,} questions are longer than {longest:,} tokens, the shortest window of the arms: left out"
            )
        return tuple(each for each in fit if (each.task, each.context, each.item, each.depth, each.repetition) not in before.answered)

    async def _ask_all(self, questions: tuple[Question, ...], models: Mapping[str, str], writer: journal.Writer) -> int:
        made = self._eval
        waiting: Iterator[Question] = iter(questions)
        async with AsyncExitStack() as open_:
            askers = {e.name: await open_.enter_async_context(Asker(e, models[e.name])) for e in made.endpoints}

            async def work() -> None:
                while not self._stops.is_set() and (question := next(waiting, None)) is not None:
                    for row in await self._ask(question, askers):
                        writer.append(row)
                    writer.flush_if_due(time.monotonic_ns())

            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(made.concurrency):
                        tasks.create_task(work())
            except* StoreError as group:  # all workers write to one journal: the first refusal tells all
                raise group.exceptions[0] from None
        return sum(1 for _ in waiting)

    async def _ask(self, question: Question, askers: Mapping[str, Asker]) -> list[AnswerRow]:
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
                request_id=self._request_id(question, arm),
            )
            self._watch(arm, replies[arm])
        rows = [self._row(question, item, arm, replies) for arm in askers]
        for row in rows:
            self._counts["failed" if row.right is None else "answered"] += 1
            self._listener(question, row.arm, row)
        return rows

    def _row(self, question: Question, item: Item, arm: str, replies: Mapping[str, Answered | Failed]) -> AnswerRow:
        reference = self._eval.endpoints[0].name
        reply, theirs = replies[arm], replies[reference]
        grade = self._eval.asked.grade(reply.text, question, item) if isinstance(reply, Answered) else None
        compared = theirs if arm != reference and isinstance(theirs, Answered) else None
        return AnswerRow(
            run_id=self._eval.run,
            arm=arm,
            task=question.task,
            item=question.item,
            context_tokens=question.context,
            depth=question.depth,
            repetition=question.repetition,
            score=None if grade is None else grade.score,
            right=None if grade is None else grade.right,
            answer=reply.text if isinstance(reply, Answered) else None,
            request_id=self._request_id(question, arm),
            signals=signals(reply, compared) if isinstance(reply, Answered) else failure(reply),
        )

    def _request_id(self, question: Question, arm: str) -> str:
        return f"{self._eval.run}.{arm}.{question.task}.{question.context}.{question.item}.{question.repetition}"

    def _watch(self, arm: str, reply: Answered | Failed) -> None:
        self._failures[arm] = self._failures[arm] + 1 if isinstance(reply, Failed) else 0
        if self._failures[arm] >= FAILURES and self._dead is None:
            self._dead = arm
            self.stop()

    def _options(self) -> str:
        return json.dumps(dict(self._eval.options), sort_keys=True)

    def _opening(self, leg: LegRow, before: Past, identities: Mapping[str, Identity], models: Mapping[str, str]) -> list[Row]:
        made = self._eval
        if made.goes_on == "join":
            return []
        rows: list[Row] = [leg]
        if before.run is None:
            names = set(models.values())
            described = RunRow(
                run_id=made.run,
                kind=kind_of(identities),
                name="eval",
                created_ns=time.time_ns(),
                trace_name=None,
                trace_hash=None,
                model=names.pop() if len(names) == 1 else None,
                design="interleaved",
                seed=made.seed,
                version=__version__,
                command=made.command,
                options=self._options(),
            )
            rows += [
                described,
                *(arm_row(made.run, position, e, models[e.name], identities[e.name]) for position, e in enumerate(made.endpoints)),
            ]
        for name, identity in identities.items():
            facts = json.dumps(identity.facts(), sort_keys=True)
            at_ns = time.monotonic_ns()
            rows.append(FingerprintRow(run_id=made.run, leg=leg.leg, arm=name, at_ns=at_ns, moment="before", round=0, facts=facts))
        return rows

    async def _load(self) -> str | None:
        try:
            await asyncio.to_thread(load, journals(self._eval.database, self._eval.run), self._eval.database)
        except StoreError as error:
            self._notice(f"not loaded yet: {error.message}")
            return error.message
        return None
