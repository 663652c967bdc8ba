"""Render a decision for machines.

The verdicts with their raw figures, and how the run was made. Its schema is
docs/decision.schema.json.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np

from advisor.evidence import Kind
from advisor.policy import Policy
from advisor.steps import Step as Suggestion
from advisor.verdict import Decision
from agentload.exposition.likeness import Likeness
from agentload.model.record import Record
from agentload.report.parts import Answer, Check, Confidence, Document, Files, Made, Rollout, Step

FORMAT: Final = "agentload-decision/1"
COMMANDS: Final = {"step": "command", "next_step": "next_command"}
"""Fields that hold a step of the advisor's, and what they are called where the command that
takes it stands instead.
"""


class Lists(Record):
    """The four lists of the report, and the classes that are in none of them."""

    use: tuple[str, ...]
    avoid: tuple[str, ...]
    calibrate: tuple[str, ...]
    test_further: tuple[str, ...]
    no_difference: tuple[str, ...]


class Report(Record):
    """One decision file. A figure that is not a number is null."""

    format: Literal["agentload-decision/1"]
    run: str
    kind: Kind
    headline: str
    why: str
    sure: Confidence
    coverage: str
    load: str
    unmeasured: str
    flips: str
    answers: tuple[Answer, ...]
    lists: Lists
    belief: tuple[Check, ...]
    do_now: tuple[Step, ...]
    rollout: Rollout | None
    decision: Decision
    policy: Policy
    made: Made
    production: tuple[Likeness, ...]
    """The run's load beside production's; empty when production was not asked. A bound of null
    is none.
    """


_SHARED: Final = frozenset(each.name for each in fields(Report)) - {"format", "lists"}
"""What a decision file has as the document has it."""


def files(document: Document) -> Files:
    """Yield the decision file."""
    yield "decision.json", json(document)


def json(document: Document) -> str:
    """Render a document as indented JSON."""
    return indented_json(_with_commands(report(document), document.next_commands))


def indented_json(said: object) -> str:
    """Write a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(said, enc_hook=plain), indent=2).decode() + "\n"


def report(document: Document) -> Report:
    """Take from a document what machines read."""
    items = {listing.word.replace(" ", "_"): listing.items for listing in document.lists}
    shared: dict[str, Any] = {name: getattr(document, name) for name in _SHARED}
    return Report(
        format=FORMAT, lists=Lists(**items, no_difference=document.no_difference), **shared
    )


def _with_commands(value: object, commands: Mapping[Suggestion, str | None]) -> object:
    """Return a value as a decision file has it: where a step stands, the command that takes it."""
    if isinstance(value, Suggestion):
        return commands[value]
    if isinstance(value, tuple):
        return [_with_commands(each, commands) for each in value]
    if is_dataclass(value):
        return {
            COMMANDS.get(each.name, each.name): _with_commands(getattr(value, each.name), commands)
            for each in fields(value)
        }
    return value


def plain(value: object) -> object:
    """Turn a number of numpy into one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a decision")
