"""Where questions come from: the catalog's tasks, made when they are asked (a long one is a megabyte), or a file of the user's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentload.errors import UsageError
from agentload.experiment.asking.plan import Asking, Question
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Grade, Item, catalog
from agentload.tasks.parts.custom import EXAMPLE, Own, parse
from agentload.tasks.parts.grading import grade_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Make items from a seed; equal seeds give equal bytes."""

    asking: Asking
    lengths: Mapping[str, Tokenizer] = field(default_factory=dict)
    """What a task's texts cost in tokens of the servers; a word is a token where nothing is known."""

    def questions(self) -> tuple[Question, ...]:
        """Return what is asked, in order."""
        return self.asking.questions()

    def item(self, question: Question) -> Item:
        """Make the item of a question."""
        task = catalog.task(question.task)
        return task.item(
            seed=self.asking.seed,
            context=question.context,
            depth=question.depth,
            number=question.number,
            tokenizer=self.lengths.get(task.name, WORD_TOKENS),
        )

    def grade(self, answer: str, question: Question, item: Item) -> Grade:
        """Grade with the task's own grader."""
        return catalog.task(question.task).grade(answer, item)


def generated(asking: Asking, *, lengths: Mapping[str, Tokenizer]) -> Generated:
    """Return the items of what is to be asked; raise `UsageError` where a task does not fit into the shortest length."""
    made = Generated(asking=asking, lengths=lengths)
    for task in asking.tasks:
        made.item(Question(task=task, context=min(asking.contexts), depth=0.5, number=0, repetition=0, item=""))
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplied:
    """Ask the user's own items."""

    items: tuple[Own, ...]
    repetitions: int

    def questions(self) -> tuple[Question, ...]:
        """Return what is asked, in the order of the file."""
        return tuple(
            Question(task=each.task, context=each.context, depth=None, number=number, repetition=repetition, item=each.name)
            for repetition in range(self.repetitions)
            for number, each in enumerate(self.items)
        )

    def item(self, question: Question) -> Item:
        """Return the item of a question."""
        return self.items[question.number].item

    def grade(self, answer: str, question: Question, item: Item) -> Grade:  # noqa: ARG002  # the protocol's signature
        """Grade by the item's own checks."""
        return grade_all(self.items[question.number].checks, answer)


def digest(path: Path) -> str:
    """Return a digest of a file of items: a run goes on with the very same."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint=EXAMPLE) from error


def supplied(path: Path, *, repetitions: int) -> Supplied:
    """Read a file of items. Raises `UsageError`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint=EXAMPLE) from error
    return Supplied(items=parse(lines, name=str(path)), repetitions=repetitions)
