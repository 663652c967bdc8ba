"""What an evaluation needs, and how a part of it went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from agentload.endpoints.endpoint import Endpoint
from agentload.experiment.asking.plan import Question
from agentload.experiment.legs.relay import Launching
from agentload.model.rows import AnswerRow
from agentload.tasks import Grade, Item


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
    launching: Launching | None = None
    """Start the servers in turn, and ask each all of its questions; None: they run all the time."""
    is_forced: bool = False
    """Ask servers that are not what the arms file expects, or what the run was played on; a caveat is kept."""


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
