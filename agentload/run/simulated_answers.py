"""Answer questions in virtual time: right as often as the profile's accuracy table says.

No prompt is written and no server is started.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.ask.asker import EndpointAnswer
from agentload.dispatch.naming import hex_name
from agentload.emulator.answers import GARBAGE, RETRIEVAL, succeeds, success_rate
from agentload.errors import UsageError
from agentload.model.controls import control_of
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.model.rows import AnswerRow, Row
from agentload.run.answer_rows import answer_row
from agentload.run.arms import ALL, read_arms
from agentload.run.ask import Evaluated
from agentload.run.past import (
    Past,
    asked_of,
    check_joined,
    order_after,
    past_answers,
    without_answers,
)
from agentload.run.place import StudyPlace
from agentload.run.questions import Question, QuestionSet, asking_of, catalog_questions
from agentload.run.record import PlayedOn, again, run_row
from agentload.run.simulate import PART, closing, opening, simulated_id
from agentload.store.loader import rewrite
from agentload.study.kinds import Ask
from agentload.study.parts import Virtual
from agentload.study.stored import Notes
from agentload.tasks import Grade
from agentload.tasks.catalog import names

RIGHT = Grade(score=1.0, right=True)
WRONG = Grade(score=0.0, right=False)
GARBLED = GARBAGE * 64
GOLDEN: Final = 0.6180339887498949


def description(
    run: str, study: Ask, arms: Mapping[str, ArmProfile], database: Path
) -> Iterator[Row]:
    """Yield the rows that describe a simulated run of questions, or of a screen."""
    yield run_row(
        run,
        study,
        plan=None,
        trace_hash=None,
        created_ns=0,
        command=again(study, database),
        notes=Notes(arms=tuple(arms)),
        on=PlayedOn(kind="simulated", model=next(iter(arms.values())).model.name),
    )
    yield from opening(run, arms)


class Answering(Record):
    """Questions to the arms of a profile; equal values give equal answers."""

    study: Ask
    asked: QuestionSet
    arms: Mapping[str, ArmProfile]
    """Arms by name, controls included."""
    place: StudyPlace
    run: str
    before: Past | None
    """What the run has that the answers join; None: they are a run of their own."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(self.arms)

    def left(self) -> tuple[Question, ...]:
        """Return the questions that fit every arm's window and that no earlier part has asked.

        Raises PlanError where they cannot join.
        """
        longest = min(arm.server.max_model_len for arm in self.arms.values())
        fit = tuple(each for each in self.asked.order if each.context <= longest)
        if self.before is None:
            return fit
        check_joined(
            self.before,
            run_id=self.run,
            arms=tuple(self.arms),
            kind="simulated",
            database=self.place.database,
        )
        return without_answers(fit, self.before.answered)

    def rows(self, questions: tuple[Question, ...]) -> Iterator[Row]:
        """Yield the rows of the answers, after the description of a run of its own."""
        if self.place.into is None:
            yield from description(self.run, self.study, self.arms, self.place.database)
        asked: Counter[tuple[str, int]] = Counter()
        for question in questions:
            # Without noise: as evenly as can be, so that any number of
            # questions is right as often as the table says, on each arm.
            luck = (
                None
                if self.is_noisy
                else (0.5 + GOLDEN * asked[question.task, question.context]) % 1
            )
            asked[question.task, question.context] += 1
            for name, arm in self.arms.items():
                yield self._row(question, name, arm, luck)
        if self.place.into is None:
            yield closing(self.run, ended_ns=0)

    @property
    def is_noisy(self) -> bool:
        """Whether answers are drawn."""
        assert isinstance(self.study.servers, Virtual), self.study.servers
        return self.study.servers.noise

    def _row(self, question: Question, name: str, arm: ArmProfile, luck: float | None) -> AnswerRow:
        item = question.item if question.part is None else f"{question.item}.{question.part}"
        prompt = hex_name(
            question.task, str(question.context), item, str(question.repetition)
        ).encode()
        published = _published(question.task)
        if luck is None:
            is_right = succeeds(
                arm,
                question.context,
                seed=self.study.seed,
                prompt=prompt,
                task=published,
                depth=question.depth,
            )
        else:
            is_right = luck < success_rate(
                arm, question.context, task=published, depth=question.depth
            )
        is_garbled = arm.failure == "repetition" and not is_right
        reply = EndpointAnswer(
            text=GARBLED if is_garbled else "",
            finish_reason="length" if is_garbled else "stop",
            prompt_tokens=question.context,
        )
        return answer_row(
            self.run,
            question,
            name,
            reply=reply,
            grade=RIGHT if is_right else WRONG,
            reference=None,
        )


def _published(task: str) -> str:
    """Return the published name of a task: mrcr_like-4 is asked as the authors of MRCR ask."""
    return task.replace("_like", "")


def _check_scored(tasks: Sequence[str], arms: Sequence[ArmProfile]) -> None:
    """Raise UsageError for a task without scores in a profile that scores others.

    The task would always be answered right.
    """
    scored = {score.task for arm in arms for score in arm.accuracy}
    if not scored or RETRIEVAL in scored:
        return
    if missing := next((task for task in tasks if _published(task) not in scored), None):
        known = [name for name in names() if _published(name) in scored]
        raise UsageError(
            f"the profile says nothing of the task '{missing}'",
            hint=f"--tasks {','.join(known)}" if known else None,
        )


def answers_of(study: Ask, place: StudyPlace) -> Answering:
    """Return which questions a study asks of which arms.

    Raises UsageError, ProfileError.
    """
    if study.own is not None:
        raise UsageError(
            "a profile says how often its tasks are answered right, not your own items",
            hint="--tasks, or ask a server",
        )
    made = asking_of(study)
    found = read_arms(study.servers, is_timed=False).profiles
    _check_scored(made.tasks, found)
    arms = {arm.name: arm for arm in found}
    if study.aa is not None and study.aa not in (ALL, *arms):
        raise UsageError(f"--aa: no arm '{study.aa}'", hint=f"one of: {', '.join(arms)}")
    arms |= {control_of(arm.name): arm for arm in found if study.aa in (ALL, arm.name)}
    asked = catalog_questions(made)
    before = None
    if place.into is not None:
        before = past_answers(place.database, place.into, tuple(arms))
        asked = replace(asked, order=order_after(made, before.answered))
    return Answering(
        study=study,
        asked=asked,
        arms=arms,
        place=place,
        run=place.into or place.run or simulated_id(study, found),
        before=before,
    )


def answer_all(made: Answering) -> Evaluated:
    """Ask what is left and store the answers; a run of its own replaces its equal."""
    questions = made.left()
    # Named by its questions, so that a later addition to the run does not replace an earlier one.
    told = hashlib.blake2b(
        repr([asked_of(each) for each in questions]).encode(), digest_size=5
    ).hexdigest()
    count = len(questions) * len(made.arms)
    if count or made.place.into is None:
        name = PART if made.place.into is None else f"answers-{told}"
        rewrite(made.rows(questions), made.place.database, run_id=made.run, name=name)
    return Evaluated(run_id=made.run, answered=count, failed=0, left=0)
