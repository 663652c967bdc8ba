"""What questions that go on, or join a run, take over from what was answered before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.ask.asker import EndpointAnswer
from agentload.errors import PlanError
from agentload.model.rows import AnswerRow, ArmRow, Kind, LegRow, Row, RunRow
from agentload.run.past import (
    Past,
    QuestionKey,
    asked_of,
    check_joined,
    check_same_questions,
    order_after,
    past_answers,
    replies,
    without_answers,
)
from agentload.run.questions import Question, asking_of
from agentload.store import journal
from agentload.store.places import journal_folder
from agentload.study.change import extend
from agentload.study.document import json_text
from agentload.study.kinds import Ask, Probe
from agentload.study.parts import Live
from agentload.study.stored import Notes

QUESTION = Question(
    task="needle", context=4096, depth=0.5, number=0, repetition=0, item="s0-d00-0000"
)
OTHERS = tuple(
    replace(QUESTION, **other)
    for other in (
        {"task": "json_recall"},
        {"context": 8192},
        {"depth": None},
        {"repetition": 1},
        {"item": "s0-d00-0001"},
    )
)
ASKS = Ask(servers=Live(endpoints="e"), tasks=("needle",), seed=3)
EVALUATED = RunRow(
    run_id="r",
    kind="measured",
    name="eval",
    created_ns=0,
    trace_name=None,
    trace_hash=None,
    model="m",
    design="interleaved",
    seed=3,
    version="",
    command="agentload eval",
    options=Notes(caveats=("b is not what the arms file expects",), digest="d").text(),
    study=json_text(ASKS),
)


DID_NOT_ASK = "run r did not begin with questions, or an older version did not write them down"


def answer(
    arm: str, question: Question, *, right: bool | None = True, said: str | None = "x"
) -> AnswerRow:
    return AnswerRow(
        run_id="r",
        arm=arm,
        task=question.task,
        item=question.item,
        context_tokens=question.context,
        depth=question.depth,
        repetition=question.repetition,
        score=None,
        right=right,
        answer=said,
        request_id="",
        signals="{}",
    )


def answered(folder: Path, *rows: Row) -> Path:
    database = folder / "x.duckdb"
    path = journal_folder(database, "r") / "leg001.journal"
    path.parent.mkdir(parents=True, exist_ok=True)
    with journal.Writer(path) as writer:
        for row in rows:
            writer.append(row)
    return database


@pytest.mark.parametrize(
    ("rows", "is_answered"),
    [
        ([answer("a", QUESTION), answer("b", QUESTION)], True),
        (
            [answer("a", QUESTION), answer("b", QUESTION, right=False)],
            True,
        ),  # wrong is answered too
        ([answer("a", QUESTION)], False),
        ([answer("a", QUESTION), answer("b", QUESTION, right=None)], False),
        ([answer("a", QUESTION), answer("b", QUESTION, right=None), answer("b", QUESTION)], True),
        (
            [answer("a", QUESTION), answer("b", QUESTION), answer("b", QUESTION, right=None)],
            False,
        ),  # taken back
        ([answer("a", QUESTION), answer("c", QUESTION)], False),  # of an arm that is not asked now
    ],
)
def test_a_question_is_answered_once_every_arm_has_answered_it(
    tmp_path: Path, rows: Sequence[Row], *, is_answered: bool
) -> None:
    found = past_answers(answered(tmp_path, *rows), "r", ("a", "b"))
    assert found.answered == ({asked_of(QUESTION)} if is_answered else set())


def test_questions_differ_by_task_length_place_repetition_and_item(tmp_path: Path) -> None:
    asked = {asked_of(each) for each in (QUESTION, *OTHERS)}
    assert len(asked) == 1 + len(OTHERS)
    assert asked_of(replace(QUESTION, number=9)) == asked_of(QUESTION)
    found = past_answers(answered(tmp_path, *(answer("a", each) for each in OTHERS)), "r", ("a",))
    assert found.answered == asked - {asked_of(QUESTION)}


def test_the_run_its_arms_in_their_order_and_its_legs_are_read(tmp_path: Path) -> None:
    arms = [
        ArmRow(run_id="r", arm=name, position=place, url="", model="m")
        for name, place in (("b", 1), ("a", 0))
    ]
    legs = [
        LegRow(run_id="r", leg=number, host="h", boot_id=None, monotonic_ns=0, wall_ns=0)
        for number in (1, 2)
    ]
    found = past_answers(answered(tmp_path, EVALUATED, *arms, *legs), "r", ("a",))
    assert (found.run, found.arms, found.legs) == (EVALUATED, ("a", "b"), 2)


def test_what_an_arm_said_before_is_compared_with_what_others_say_now(tmp_path: Path) -> None:
    database = answered(
        tmp_path,
        answer("a", QUESTION, said="yes"),
        answer("a", OTHERS[0], said=None),
        answer("b", QUESTION, said="no"),
    )
    assert replies(database, "r", "a") == {
        asked_of(QUESTION): EndpointAnswer(text="yes", finish_reason=None)
    }


def asked_before(run: RunRow | None = EVALUATED, arms: tuple[str, ...] = ("a", "b")) -> Past:
    return Past(run=run, arms=arms, legs=1, answered=frozenset())


@pytest.mark.parametrize(
    ("before", "study", "digest", "says"),
    [
        (asked_before(), ASKS, "d", None),
        (asked_before(), extend(ASKS, endpoints="elsewhere", concurrency=2), "d", None),
        (asked_before(), extend(ASKS, seed=4), "d", "run r began with other seed"),
        (asked_before(), extend(ASKS, items=9), "d", "run r began with other items"),
        (asked_before(), ASKS, "other", "run r began with other questions"),
        (
            asked_before(replace(EVALUATED, study=json_text(Probe(servers=Live(endpoints="e"))))),
            ASKS,
            "d",
            DID_NOT_ASK,
        ),
        (asked_before(None), ASKS, "d", "no journal of run r beside x.duckdb"),
    ],
)
def test_an_evaluation_goes_on_only_with_the_questions_that_it_began_with(
    before: Past, study: Ask, digest: str, says: str | None
) -> None:
    said = None
    try:
        check_same_questions(
            before, run_id="r", study=study, found=Notes(digest=digest), database=Path("x.duckdb")
        )
    except PlanError as error:
        said = error.message
    assert said == says


@pytest.mark.parametrize(
    ("before", "arms", "kind", "says"),
    [
        (asked_before(), ("a", "b"), "measured", None),
        (asked_before(), ("b",), "measured", None),
        (asked_before(), ("a",), None, None),
        (asked_before(), ("a", "c"), "measured", "run r has no arm 'c'"),
        (asked_before(), ("a",), "emulated", "run r is measured, these answers are emulated"),
        (
            asked_before(replace(EVALUATED, kind="simulated")),
            ("a",),
            "measured",
            "run r is simulated, these answers are measured",
        ),
        (asked_before(replace(EVALUATED, kind="simulated")), ("a",), "emulated", None),
        (asked_before(None), ("a",), "measured", "no journal of run r beside x.duckdb"),
    ],
)
def test_answers_join_a_run_of_the_same_arms_and_what_was_measured_mixes_with_nothing_else(
    before: Past, arms: tuple[str, ...], kind: Kind | None, says: str | None
) -> None:
    said = None
    try:
        check_joined(before, run_id="r", arms=arms, kind=kind, database=Path("x.duckdb"))
    except PlanError as error:
        said = error.message
    assert said == says


@given(
    had=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    items=st.integers(1, 120),
    together=st.sampled_from((1, 4)),
)
@settings(max_examples=40, deadline=None)
def test_as_many_questions_are_left_as_each_length_lacks_however_uneven_those_before(
    had: tuple[int, int], items: int, together: int
) -> None:
    asking = asking_of(extend(ASKS, contexts=(4096, 8192), items=items, per_context=together))
    whole = replace(asking, items=1_000).questions()
    answered: set[QuestionKey] = set()
    for context, number in zip(asking.contexts, had, strict=True):
        at = [each for each in whole if each.context == context][: min(number, items)]
        answered |= {asked_of(each) for each in at}
    other = asked_of(replace(QUESTION, task="json_recall"))
    order = order_after(asking, frozenset({*answered, other}))
    assert len(order) == len(set(order))
    missing = Counter(each.context for each in without_answers(order, frozenset(answered)))
    named = Counter(each.context for each in asking.questions())
    for context in asking.contexts:
        before = sum(of == context for _, of, *_ in answered)
        assert missing[context] == max(0, named[context] - before)


def test_questions_of_another_seed_or_places_are_asked_beside_those_of_a_run() -> None:
    asking = asking_of(extend(ASKS, contexts=(4096,), items=20, depths=3, repetitions=2))
    other = (replace(asking, seed=4), replace(asking, depths=(0.5,)), replace(asking, together=4))
    answered = frozenset(asked_of(each) for of in other for each in of.questions())
    assert len(without_answers(order_after(asking, answered), answered)) == 40


def test_a_length_that_is_new_to_a_run_with_as_many_items_is_asked() -> None:
    short = asking_of(extend(ASKS, contexts=(4096,), items=100))
    both = asking_of(extend(ASKS, contexts=(4096, 8192), items=100))
    order = order_after(both, frozenset(map(asked_of, short.questions())))
    left = without_answers(order, frozenset(map(asked_of, short.questions())))
    assert [each.context for each in left] == [8192] * 50
