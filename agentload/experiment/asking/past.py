"""What earlier legs of an evaluation left in its journals: the questions that need not be asked again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from agentload.ask.asker import Answered
from agentload.errors import PlanError
from agentload.experiment.asking.plan import Question
from agentload.experiment.legs.known import began_as
from agentload.model.rows import AnswerRow, ArmRow, Kind, LegRow, RunRow
from agentload.store import journal
from agentload.store.places import journals

Asked: TypeAlias = tuple[str, int, str, float | None, int]
"""Task, context, item, depth, repetition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A run so far."""

    run: RunRow | None
    arms: tuple[str, ...]
    legs: int
    answered: frozenset[Asked]
    """Asked of every arm, and answered by all."""
    began_as: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each arm's server was when it first told so."""


def past(database: Path, run_id: str, arms: tuple[str, ...]) -> Past:
    """Read the journals of a run; an answer that failed counts as not given."""
    rows = [row for path in journals(database, run_id) for row in journal.read(path)]
    # A later row of a question stands for it: what a server that changed had answered was taken back.
    given = {
        (row.arm, (row.task, row.context_tokens, row.item, row.depth, row.repetition)): row.right is not None
        for row in rows
        if isinstance(row, AnswerRow)
    }
    counted = Counter(asked for (arm, asked), is_given in given.items() if is_given and arm in arms)
    return Past(
        run=next((row for row in rows if isinstance(row, RunRow)), None),
        arms=tuple(row.arm for row in sorted((row for row in rows if isinstance(row, ArmRow)), key=lambda row: row.position)),
        legs=max((row.leg for row in rows if isinstance(row, LegRow)), default=0),
        answered=frozenset(asked for asked, count in counted.items() if count == len(arms)),
        began_as=began_as(rows),
    )


def asked_of(question: Question) -> Asked:
    """Return by what a question is told from others."""
    return (question.task, question.context, question.item, question.depth, question.repetition)


def replies(database: Path, run_id: str, arm: str) -> dict[Asked, Answered]:
    """Return what an arm answered before, as far as it is kept: its words."""
    rows = (row for path in journals(database, run_id) for row in journal.read(path))
    said = {
        (row.task, row.context_tokens, row.item, row.depth, row.repetition): row.answer
        for row in rows
        if isinstance(row, AnswerRow) and row.arm == arm
    }
    return {asked: Answered(text=text, finish_reason=None) for asked, text in said.items() if text is not None}


def check_resumed(before: Past, *, run_id: str, options: str, seed: int, database: Path) -> None:
    """Raise `PlanError` unless the run began with the same questions."""
    if before.run is None:
        raise PlanError(f"no journal of run {run_id} beside {database}", hint=f"agentload runs list --db {database}")
    began = json.loads(before.run.options)
    began.pop("caveats", None)  # of its servers, not of its questions
    if (began, before.run.seed) != (json.loads(options), seed):
        raise PlanError(f"run {run_id} began with other questions", hint=f"resume with what it began with: {before.run.command}")


def check_joined(before: Past, *, run_id: str, arms: tuple[str, ...], kind: Kind | None, database: Path) -> None:
    """Raise `PlanError` unless the run is there and was played on these arms. What was measured never mixes with what was not.

    *kind* is None before anybody was asked.
    """
    if before.run is None:
        raise PlanError(f"no journal of run {run_id} beside {database}", hint=f"agentload runs list --db {database}")
    if kind is not None and (before.run.kind == "measured") != (kind == "measured"):
        raise PlanError(f"run {run_id} is {before.run.kind}, these answers are {kind}", hint="ask the endpoints that the run was played on")
    if missing := [arm for arm in arms if arm not in before.arms]:
        raise PlanError(f"run {run_id} has no arm '{missing[0]}'", hint=f"name the endpoints as it does: {', '.join(before.arms)}")
