"""Read what a screen of answers stored, as the advisor reads it."""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from advisor.evidence import Screened
from advisor.statistics.screen import is_broken
from agentload.evidence.view import RunView
from agentload.model.record import Record
from agentload.model.rows import ProbeRow

SCREEN: Final = "screen"
"""Probe that compares how likely tokens are."""


def screen(
    view: RunView, arms: Collection[str]
) -> tuple[tuple[Screened, ...], tuple[tuple[str, str], ...]]:
    """Return the distances of a run's last screen, and the arms not screened with the reason."""
    rows = [row for row in view.probes_of(SCREEN) if row.arm in arms]
    newest = max((row.at_ns for row in rows), default=0)
    last = [row for row in rows if row.at_ns == newest]
    excused = (
        (row.arm, str(_detail(row).get("reason", "")))
        for row in last
        if row.outcome == "not screened"
    )
    return read(last), tuple(excused)


def read(rows: Sequence[ProbeRow]) -> tuple[Screened, ...]:
    """Return the distances that were read through the cache."""
    found = (
        (row, json.loads(row.settings), _detail(row)) for row in rows if row.outcome == "compared"
    )
    return tuple(
        Screened(
            arm=row.arm,
            prompt=said["prompt"],
            length=float(said["length"]),
            variation=detail["variation"],
            own=tuple(detail["own"]),
            agreement=detail["agreement"],
            cached=detail.get("cached"),
        )
        for row, said, detail in found
        if said.get("path") == "cache"
    )


class Scored(Record):
    """What scoring a whole prompt showed of an arm, next to single tokens after the prompt."""

    arm: str
    length: int
    variation: float
    own: float
    cached: float | None
    """Share of it that was read from the cache; servers compute such a prompt anew."""


def scored_prompts(view: RunView, arms: Collection[str]) -> tuple[Scored, ...]:
    """Return what scored prompts showed."""
    found = (
        (row.arm, json.loads(row.settings), _detail(row))
        for row in view.probes_of(SCREEN)
        if row.outcome == "compared" and row.arm in arms
    )
    return tuple(
        Scored(
            arm=arm,
            length=said["length"],
            variation=detail["variation"],
            own=detail["own"][0],
            cached=detail.get("cached"),
        )
        for arm, said, detail in found
        if said.get("path") == "prompt"
    )


def breaks(rows: Sequence[ProbeRow]) -> bool:
    """Tell whether an arm's answers are broken at one of the lengths screened so far."""
    found = read(rows)
    return any(
        is_broken([each for each in found if each.length == length])
        for length in {each.length for each in found}
    )


def _detail(row: ProbeRow) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row.detail or "{}")
    return found
