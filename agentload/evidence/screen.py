"""What a screen of answers stored, as the advisor reads it."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from advisor.evidence import Screened
from advisor.statistics.screen import is_broken
from agentload.model.rows import ProbeRow
from agentload.store import tables

SCREEN: Final = "screen"
"""Probe that compares how likely tokens are."""


def screen(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]
) -> tuple[tuple[Screened, ...], tuple[tuple[str, str], ...]]:
    """Read a run's last screen: distances, and the arms that told none, with the reason."""
    rows = [
        row
        for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=SCREEN)
        if row.arm in arms
    ]
    last = [row for row in rows if row.at_ns == max(each.at_ns for each in rows)]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What scoring a prompt whole showed of an arm, beside single tokens behind it."""

    arm: str
    length: int
    variation: float
    own: float
    cached: float | None
    """Share of it that was read from the cache; servers compute such a prompt anew."""


def scored(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]
) -> tuple[Scored, ...]:
    """Read what scored prompts showed."""
    rows = [
        row
        for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=SCREEN)
        if row.outcome == "compared" and row.arm in arms
    ]
    found = ((row.arm, json.loads(row.settings), _detail(row)) for row in rows)
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
    """Tell whether an arm's answers are broken at one of the lengths so far."""
    found = read(rows)
    return any(
        is_broken([each for each in found if each.length == length])
        for length in {each.length for each in found}
    )


def _detail(row: ProbeRow) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row.detail or "{}")
    return found
