"""Questions of the catalog's tasks, made when they are asked: a long one is a megabyte."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentload.experiment.eval_plan import Asking, Question
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import catalog
from agentload.tasks.item import Grade, Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """Make items from a seed; equal seeds give equal bytes."""

    asking: Asking
    seed: int
    tokenizer: Tokenizer = field(default=WORD_TOKENS)

    def questions(self) -> tuple[Question, ...]:
        """Return what is asked, in order."""
        return self.asking.questions()

    def item(self, question: Question) -> Item:
        """Make the item of a question."""
        task = catalog.task(question.task)
        return task.item(seed=self.seed, context=question.context, depth=question.depth, number=question.number, tokenizer=self.tokenizer)

    def grade(self, answer: str, question: Question, item: Item) -> Grade:
        """Grade with the task's own grader."""
        return catalog.task(question.task).grade(answer, item)

    def prompt_tokens(self, question: Question) -> int:
        """Say how long a question is, without making it."""
        return question.context
