"""Render a decision for machines: the verdicts with their raw figures, how the run was made, and a schema for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import numpy as np

from advisor.evidence import Kind
from advisor.policy import Policy
from advisor.verdict import Decision
from agentload.exposition.likeness import Likeness
from agentload.report.facts import Made
from agentload.report.parts import Answer, Check, Document, Rollout, Step

FORMAT: Final = "agentload-decision/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """The four lists of the report, and the classes that are in none of them."""

    use: tuple[str, ...]
    avoid: tuple[str, ...]
    calibrate: tuple[str, ...]
    test_further: tuple[str, ...]
    no_difference: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One decision file. A figure that is not a number is null."""

    format: Literal["agentload-decision/1"]
    run: str
    kind: Kind
    headline: str
    answers: tuple[Answer, ...]
    lists: Lists
    belief: tuple[Check, ...]
    do_now: tuple[Step, ...]
    rollout: Rollout | None
    decision: Decision
    policy: Policy
    made: Made
    production: tuple[Likeness, ...]
    """The run's load beside production's; empty when production was not asked. A bound of null is none."""


def files(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the decision file."""
    yield "decision.json", json(document)


def json(document: Document) -> str:
    """Render a document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(report(document), enc_hook=plain), indent=2).decode() + "\n"


def report(document: Document) -> Report:
    """Take from a document what machines read."""
    items = {listing.word: listing.items for listing in document.lists}
    return Report(
        format=FORMAT,
        run=document.run,
        kind=document.kind,
        headline=document.headline,
        answers=document.answers,
        lists=Lists(
            use=items["use"],
            avoid=items["avoid"],
            calibrate=items["calibrate"],
            test_further=items["test further"],
            no_difference=document.no_difference,
        ),
        belief=document.belief,
        do_now=document.do_now,
        rollout=document.rollout,
        decision=document.decision,
        policy=document.policy,
        made=document.made,
        production=document.production,
    )


def schema() -> str:
    """Return the JSON schema of a decision file."""
    made = msgspec.json.schema(Report)
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "agentload decision", **_nullable(made)}
    return msgspec.json.format(msgspec.json.encode(made, order="sorted"), indent=2).decode() + "\n"


def _nullable(part: Any) -> Any:  # noqa: ANN401  # a schema is JSON of any shape
    """Let every number be null: JSON has no word for what is not a number."""
    match part:
        case {"type": "number", **rest}:
            return {"type": ["number", "null"], **rest}
        case dict():
            return {key: _nullable(value) for key, value in part.items()}
        case list():
            return [_nullable(each) for each in part]
        case _:
            return part


def plain(value: object) -> object:
    """Turn a number of numpy into one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a decision")
