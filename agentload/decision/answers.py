"""Ask questions in sequence: a pilot, then looks that spend the error.

The answers decide, or the items are used up. The looks and what each may spend are those of a
decision. A look that finds a reference which cannot answer ends the sequence.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import duckdb

from advisor.assess.accuracy import correlation
from advisor.assess.answers import LEAST_IN_A_BUCKET
from advisor.evidence import AccuracyBucket
from advisor.statistics.planning import questions_a_context
from agentload.decision.look import ITEMS
from agentload.evidence import grades
from agentload.evidence.grades import IN_SEQUENCE, graded_answers
from agentload.evidence.grades import accuracy as paired
from agentload.model.record import Record
from agentload.model.rows import AnswerRow, ArmRow, ProbeRow, Row
from agentload.report.format import typeset
from agentload.run import door, past
from agentload.run.additions import remember_addition
from agentload.run.ask import Evaluated
from agentload.run.audience import Audience
from agentload.run.evaluation import Evaluation
from agentload.run.past import asked_of
from agentload.run.place import StudyPlace
from agentload.run.questions import Asking, Question, asking_of
from agentload.run.record import again
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.loader import rewrite
from agentload.study.change import extend
from agentload.study.kinds import Ask
from agentload.study.parts import Live
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict

AnswersEnding: TypeAlias = Literal["settled", "hopeless", "open", "stopped"]
"""How a sequence ended.

hopeless: the reference cannot answer; open: all items were asked, and an arm is neither shown to
be as accurate nor to be worse.
"""

CORRELATED: Final = 40
"""Items from which on the likeness of questions behind one context is estimated."""
EVENLY: Final[Mapping[int, float]] = MappingProxyType({})
QUESTION_TOKENS: Final = 256
"""Prompt tokens that a further question is worth: its own words, and its slower answer."""


class AnswersEnd(Record):
    """How a sequence ended."""

    asked: Evaluated
    items: int
    ending: AnswersEnding
    said: str


def looks(study: Ask) -> tuple[int, ...]:
    """Return the numbers of items after which a study is looked at."""
    most = study.items or ITEMS[-1]
    return (*(each for each in ITEMS if each < most), most)


def in_sequence(study: Ask, place: StudyPlace, audience: Audience) -> AnswersEnd:
    """Ask until the answers decide; keep the study with the run that it adds to."""
    ended = _ask_in_looks(study, place, audience)
    remember_addition(study, place)
    goes_on = again(study, place.database, resume=ended.asked.run_id)
    return replace(ended, asked=replace(ended.asked, goes_on=goes_on))


def _ask_in_looks(study: Ask, place: StudyPlace, audience: Audience) -> AnswersEnd:
    study = extend(study, items=looks(study)[-1])
    for look in looks(study):
        ended = answers_until(study, look, place, audience)
        if ended.left or ended.load_error is not None:
            return AnswersEnd(
                asked=ended,
                items=look,
                ending="stopped",
                said="stopped before all was answered that was asked",
            )
        if place.into is not None:
            planned = json.dumps({"looks": looks(study)})
            row = ProbeRow(
                run_id=place.into,
                arm="",
                probe=IN_SEQUENCE,
                at_ns=0,
                settings=planned,
                outcome="planned",
            )
            rewrite([row], place.database, run_id=place.into, name="sequence")
        elif isinstance(study.servers, Live):
            place = replace(place, run=None, resume=ended.run_id)
        ending, said = _looked(place, ended.run_id)
        audience.notice(f"{look:,} items: {said}")
        if ending is not None:
            break
    return AnswersEnd(asked=ended, items=look, ending=ending or "open", said=said)


def answers_until(
    study: Ask,
    items: int,
    place: StudyPlace,
    audience: Audience,
    *,
    order: tuple[Question, ...] | None = None,
) -> Evaluated:
    """Ask until there are *items* answers in all, in this *order* where one is given."""
    if order is None:
        order = question_order(study, items, place)

    def ordered(made: Evaluation) -> Evaluation:
        own = order if study.own is None else made.asked.order[:items]
        return replace(made, asked=replace(made.asked, order=own))

    ended = door.carry_out(study, place, audience, adapt=ordered)
    assert isinstance(ended, Evaluated), "no screen"
    return ended


def question_order(
    study: Ask, items: int, place: StudyPlace, *, shares: Mapping[int, float] = EVENLY
) -> tuple[Question, ...]:
    """Return what a run is asked until it has *items* answers, each length with its share.

    As many questions follow each further context as are worth it, by how alike those so far were.
    """
    asking = replace(asking_of(study), items=items)
    of_length = frozenset(shares.items())
    run = place.into or place.resume
    each = asking.together
    if each == 1 or run is None or not place.database.exists():
        return _shared(asking, of_length)
    with reading(place.database) as connection:
        arms = [row.arm for row in tables.rows(connection, ArmRow, run_id=run)]
        graded = graded_answers(connection, run)
        buckets = paired(graded, arms, arms[0])[0] if arms else ()
        given = _given(connection, run)
    tokens = sum(bucket.context_tokens for bucket in buckets) / max(1, len(buckets))
    fewer = questions_a_context(_together(buckets), tokens, QUESTION_TOKENS, most=each)
    order = _shared(replace(asking, each=fewer), of_length)
    named = {asked_of(one) for one in order}
    whole = _shared(replace(asking, items=items * each), of_length)
    beyond = [one for one in whole if asked_of(one) in given and asked_of(one) not in named]
    return (*beyond, *order[: len(order) - len(beyond)])


def open_questions(order: Sequence[Question], place: StudyPlace) -> tuple[Question, ...]:
    """Return the questions of an order that a run has no answer to."""
    run = place.into or place.resume
    if run is None or not place.database.exists():
        return tuple(order)
    with reading(place.database) as connection:
        given = _given(connection, run)
    return tuple(each for each in order if asked_of(each) not in given)


def carry_answers(database: Path, run: str, into: str) -> None:
    """Copy the answers of a run and its canary's lengths to another run of the same arms."""
    with reading(database) as connection:
        answers = tables.rows(connection, AnswerRow, run_id=run)
        canaries = tables.rows(connection, ProbeRow, run_id=run, probe=grades.CANARY)
    carried: list[Row] = [replace(row, run_id=into) for row in answers]
    carried += [replace(row, run_id=into) for row in canaries]
    rewrite(carried, database, run_id=into, name="answers")


def _given(connection: duckdb.DuckDBPyConnection, run: str) -> set[past.QuestionKey]:
    """Return the questions that a run has an answer to."""
    found = connection.execute(
        "SELECT DISTINCT task, context_tokens, item, depth, repetition FROM graded "
        'WHERE run_id = ? AND "right" IS NOT NULL',
        [run],
    )
    return set(found.fetchall())


def _together(buckets: Sequence[AccuracyBucket]) -> float:
    """Return how alike the questions of one context are: their largest correlation."""
    return max((correlation(each) for each in buckets if each.items >= CORRELATED), default=0.0)


@lru_cache(maxsize=16)
def _shared(asking: Asking, shares: frozenset[tuple[int, float]]) -> tuple[Question, ...]:
    """Return the questions, each length with its share.

    A larger number of questions begins with the same ones at each length.
    """
    wanted = {
        length: math.ceil(asking.items * share)
        for length, share in shares
        if length in asking.contexts
    }
    if len(wanted) < len(asking.contexts):
        return asking.questions()
    enough = (max(wanted.values()) + asking.together * len(asking.tasks)) * len(asking.contexts)
    asked = Counter[int]()
    placed: list[tuple[float, Question]] = []
    for question in replace(asking, items=enough).questions():
        place = asked[question.context]
        most = wanted[question.context]
        asked[question.context] += 1
        if place < most:
            placed.append(((place + 0.5) / most, question))
    ordered = sorted(placed, key=lambda each: each[0])
    return tuple(question for _, question in ordered[: asking.items])


def _looked(place: StudyPlace, run: str) -> tuple[AnswersEnding | None, str]:
    """Return how the sequence ends, or None, and what the answers so far show."""
    first = grades.summarise(place.database, run).arms[0]
    if first.right < LEAST_IN_A_BUCKET * Setting().policy.accuracy_margin * first.answered:
        return "hopeless", (
            f"{first.arm} answers {first.right} of {first.answered}: these questions show "
            "no difference. Other tasks, shorter lengths, "
            "or a model that can answer them"
        )
    decision = verdict(place.database, run, setting=Setting()).decision
    legs = {each.arm: each.safe for each in decision.server if each.arm != decision.reference}
    said = "; ".join(
        typeset(f"{arm}: {_WORDS[leg.state]}, {leg.reason}") for arm, leg in legs.items()
    )
    return ("settled" if all(leg.state in ("yes", "no") for leg in legs.values()) else None), said


_WORDS: Final = {
    "yes": "as accurate",
    "no": "worse",
    "unclear": "open",
    "untested": "open",
    "equal": "as accurate",
}
