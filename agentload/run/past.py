"""Read from the journals of a run which pairs are done and which questions are answered."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import field

from agentload.ask.asker import EndpointAnswer
from agentload.dispatch.stretches import stretches, where
from agentload.errors import PlanError
from agentload.model.controls import is_control
from agentload.model.plan import Plan, Play, Round
from agentload.model.record import Record
from agentload.model.rows import (
    AnswerRow,
    ArmRow,
    BlockRow,
    CallRow,
    FingerprintRow,
    Kind,
    LegRow,
    Row,
    RunRow,
)
from agentload.run.known import began_as
from agentload.run.questions import Asking, Question
from agentload.store.places import journal_rows
from agentload.study.change import differences
from agentload.study.kinds import Ask, Replay, Study
from agentload.study.parts import Live
from agentload.study.stored import Notes, notes, study_of

DESCRIBING: Final = (RunRow, LegRow, ArmRow, FingerprintRow)
"""Rows that say how a run began."""
KEPT: Final = (*DESCRIBING, BlockRow, CallRow)


QuestionKey: TypeAlias = tuple[str, int, str, float | None, int]
"""Task, context, item, depth, repetition."""


class Past(Record):
    """Hold what the earlier parts of a run left."""

    legs: int = 0
    run: RunRow | None = None
    """First description of the run."""
    described: RunRow | None = None
    """Latest description of the run, which may have been given more."""
    arms: tuple[str, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Latest facts that each arm's server stated."""
    began_as: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """First stated value of each fact of each arm's server."""
    done: frozenset[int] = frozenset()
    """Pairs that every arm has played."""
    lost: Mapping[int, int] = field(default_factory=dict)
    """Number of plays of each unfinished pair that may have gone out.

    Their salts, and with them their request ids, are used up.
    """
    answered: frozenset[QuestionKey] = frozenset()
    """Questions that every arm has answered."""

    def began(self, run_id: str, database: Path) -> RunRow:
        """Return the first description of the run.

        Raises PlanError where nobody began the run.
        """
        if self.run is None:
            raise PlanError(
                f"no journal of run {run_id} beside {database}",
                hint=f"agentload runs list {database}",
            )
        return self.run


def _past(rows: Sequence[Row]) -> Past:
    arms = sorted((row for row in rows if isinstance(row, ArmRow)), key=lambda row: row.position)
    runs = [row for row in rows if isinstance(row, RunRow)]
    return Past(
        legs=max((row.leg for row in rows if isinstance(row, LegRow)), default=0),
        run=next(iter(runs), None),
        described=next(reversed(runs), None),
        arms=tuple(row.arm for row in arms),
        facts={row.arm: json.loads(row.facts) for row in rows if isinstance(row, FingerprintRow)},
        began_as=began_as(rows),
    )


def past(database: Path, plan: Plan) -> Past:
    """Read which pairs of a plan its run's journals have."""
    # A machine that lost power leaves pages missing behind the last
    # sync: rows of the pair in play, which is invalid anyway.
    rows = list(journal_rows(database, plan.run, kinds=KEPT, damaged=lambda _: None))
    whole = Counter(
        (row.pair, row.salt) for row in rows if isinstance(row, BlockRow) and row.void is None
    )
    done = frozenset(pair for (pair, _), count in whole.items() if count == len(plan.arms))
    return replace(
        _past(rows),
        done=done,
        lost={pair: count for pair, count in _played(rows).items() if pair not in done},
    )


def needless(plays: Iterable[Play], done: frozenset[int]) -> frozenset[int]:
    """Return the pairs to leave out: done ones, but a warm-up only if all the rest are done."""
    own = tuple(plays)
    if all(play.warmup or play.pair in done for play in own):
        return done
    return done - {play.pair for play in own if play.warmup}


def _played(rows: Sequence[Row]) -> Counter[int]:
    """Count each pair's plays by their salts; calls without a block row were a killed play.

    Rows of one part may come from several journals, so only their times tell which was first.
    """
    salts: set[tuple[int, str]] = set()
    closed_ns: dict[tuple[int, int, str], int] = {}
    for row in rows:
        if isinstance(row, BlockRow):
            salts.add((row.pair, row.salt))
            key = (row.leg, row.pair, row.arm)
            closed_ns[key] = max(closed_ns.get(key, 0), row.ended_ns or 0)
    calls = (row for row in rows if isinstance(row, CallRow))
    killed = {
        (row.leg, row.pair)
        for row in calls
        if row.released_ns > closed_ns.get((row.leg, row.pair, row.arm), -1)
    }
    return Counter([pair for pair, _ in salts] + [pair for _, pair in killed])


def check_resumed(
    before: Past, plan: Plan, study: Study, *, trace_hash: str, database: Path
) -> None:
    """Raise PlanError unless *plan* resumes the run where it stopped."""
    run = before.began(plan.run, database)
    hint = f"resume with what it began with: {run.command}"
    if run.trace_hash != trace_hash:
        raise PlanError(
            f"run {plan.run} began with trace {run.trace_hash}, not {trace_hash}", hint=hint
        )
    if before.arms != plan.arms:
        raise PlanError(
            f"run {plan.run} began with the arms {', '.join(before.arms)}, not "
            f"{', '.join(plan.arms)}",
            hint=hint,
        )
    first = study_of(run)
    if first is None:
        raise PlanError(
            f"run {plan.run} is of an older version, which did not write down how it was played",
            hint="replay it again",
        )
    if other := (*differences(first, study), *_other(first, study, run, plan)):
        raise PlanError(f"run {plan.run} began with other {' and '.join(other)}", hint=hint)


def _other(first: Study, study: Study, run: RunRow, plan: Plan) -> Iterator[str]:
    """Name what differs besides the studies.

    More pairs than a run began with continue the same plan.
    """
    if isinstance(first, Replay) and isinstance(study, Replay):
        if study.pairs < first.pairs:
            yield "pairs"
        # Which start a pair was played on is seen, not planned:
        # more pairs may bring more starts, never fewer.
        began = _starts(first)
        now = _starts(study)
        if began is not None and now is not None:
            has_more = now > began and study.pairs == first.pairs
            if now < began or has_more:
                yield "restarts"
    machines = [dict(where(stretch)) for stretch in stretches(plan.rounds)]
    then = list(notes(run.options).machines)
    if then and then != machines[: len(then)]:
        yield "machines"


def _starts(study: Replay) -> int | None:
    """Return how often each server is started; None where it runs all the time."""
    if isinstance(study.servers, Live) and study.servers.launch:
        return study.servers.restarts or study.pairs
    return None


def past_answers(database: Path, run_id: str, arms: tuple[str, ...]) -> Past:
    """Read the journals of a run; an answer that failed counts as not given."""
    rows = list(journal_rows(database, run_id, kinds=(*DESCRIBING, AnswerRow)))
    # The last row of a question counts: answers of a
    # server that changed were taken back by later rows.
    given = {
        (row.arm, _asked(row)): row.right is not None for row in rows if isinstance(row, AnswerRow)
    }
    counted = Counter(asked for (arm, asked), is_given in given.items() if is_given and arm in arms)
    return replace(
        _past(rows),
        answered=frozenset(asked for asked, count in counted.items() if count == len(arms)),
    )


def asked_of(question: Question) -> QuestionKey:
    """Return the key of a question."""
    return (question.task, question.context, question.item, question.depth, question.repetition)


def without_answers(
    order: Sequence[Question], answered: frozenset[QuestionKey]
) -> tuple[Question, ...]:
    """Return the questions of an order that every arm is still to answer."""
    return tuple(each for each in order if asked_of(each) not in answered)


def order_after(asking: Asking, answered: frozenset[QuestionKey]) -> tuple[Question, ...]:
    """Return what a run is asked until each length has its items, whichever it was asked first.

    Another verb may have asked some lengths more often than others.
    """
    order, forms = asking.questions(), asking.forms
    room = Counter(each.context for each in order)
    for task, context, item, depth, repetition in answered:
        form = (item[: item.rfind("-") + 1], depth)
        if task in asking.tasks and form in forms and repetition < asking.repetitions:
            room[context] -= 1
    out = list[Question]()
    for each in order:
        if asked_of(each) in answered:
            out.append(each)
        elif room[each.context] > 0:
            room[each.context] -= 1
            out.append(each)
    return tuple(out)


def _asked(row: AnswerRow) -> QuestionKey:
    return (row.task, row.context_tokens, row.item, row.depth, row.repetition)


def replies(database: Path, run_id: str, arm: str) -> dict[QuestionKey, EndpointAnswer]:
    """Return the answers that an arm gave before; only their texts are kept."""
    rows = (
        row
        for row in journal_rows(database, run_id, kinds=(AnswerRow,))
        if isinstance(row, AnswerRow) and row.arm == arm
    )
    said = {_asked(row): row.answer for row in rows}
    return {
        asked: EndpointAnswer(text=text, finish_reason=None)
        for asked, text in said.items()
        if text is not None
    }


def check_same_questions(
    before: Past, *, run_id: str, study: Ask, found: Notes, database: Path
) -> None:
    """Raise `PlanError` unless the run began with the same questions."""
    run = before.began(run_id, database)
    hint = f"resume with what it began with: {run.command}"
    first = study_of(run)
    then = notes(run.options)
    if not isinstance(first, Ask):
        raise PlanError(
            f"run {run_id} did not begin with questions, or an older version did not write "
            "them down",
            hint=hint,
        )
    other = differences(first, study, roles=("what", "amount"))
    if other or (then.lengths, then.digest, then.arms) != (found.lengths, found.digest, found.arms):
        raise PlanError(
            f"run {run_id} began with other {' and '.join(other) or 'questions'}", hint=hint
        )


def check_joined(
    before: Past, *, run_id: str, arms: tuple[str, ...], kind: Kind | None, database: Path
) -> None:
    """Raise `PlanError` unless the run exists and was played on these arms.

    Measured and other rows never mix. *kind* is None before anybody was asked.
    """
    run = before.began(run_id, database)
    if kind is not None and (run.kind == "measured") != (kind == "measured"):
        raise PlanError(
            f"run {run_id} is {run.kind}, these answers are {kind}",
            hint="ask the endpoints that the run was played on",
        )
    if missing := [arm for arm in arms if arm not in before.arms]:
        raise PlanError(
            f"run {run_id} has no arm '{missing[0]}'",
            hint=f"name the endpoints as it does: {', '.join(before.arms)}",
        )


# first number of pairs that are added to a run; its own count from 0, and a resumption may add some
ADDED_FROM: Final = 1_000_000


def added_pairs(database: Path, run: str) -> int:
    """Count the pairs that additions to a run played or began.

    A plan that continues them has that many more.
    """
    rows = (
        row
        for row in journal_rows(database, run, kinds=(BlockRow, CallRow))
        if isinstance(row, BlockRow | CallRow)
    )
    return max((row.pair - ADDED_FROM + 1 for row in rows if row.pair >= ADDED_FROM), default=0)


def added_plan(made: Plan, database: Path) -> Plan:
    """Return what is left of a plan to add to the run that it names, with pairs of its own.

    Raises PlanError where the run has other arms. The plan counts from the first pair that was ever
    added to the run, so that the orders of its arms stay balanced.
    """
    arms = {
        row.arm
        for row in journal_rows(database, made.run, kinds=(ArmRow,))
        if isinstance(row, ArmRow) and not is_control(row.arm)
    }
    if missing := sorted(arms - set(made.arms)):
        raise PlanError(
            f"run {made.run} has an arm '{missing[0]}' and the endpoints have not",
            hint=f"its arms: {', '.join(sorted(arms))}",
        )
    if unknown := sorted(set(made.arms) - arms):
        raise PlanError(
            f"run {made.run} has no arm '{unknown[0]}'",
            hint=f"its arms: {', '.join(sorted(arms)) or 'none'}",
        )
    first = added_pairs(database, made.run)

    def moved(play: Play) -> Play:
        return replace(
            play,
            pair=play.pair + ADDED_FROM,
            salt=f"{play.salt.rpartition('/')[0]}/{play.pair + ADDED_FROM}",
        )

    left = (
        tuple(moved(play) for play in round_.plays if play.pair >= first) for round_ in made.rounds
    )
    return replace(
        made,
        rounds=tuple(
            Round(index=index, plays=plays) for index, plays in enumerate(filter(None, left))
        ),
    )
