"""Say what a matrix would do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentload.cli._dry import about
from agentload.cli._table import table
from agentload.layout.cost import ASSUMED_PREFILL_TOKENS_PER_S, ASSUMED_TOKEN_S
from agentload.matrix.described import LeftOut, Matrix
from agentload.matrix.steps import Estimate, Part, Step
from agentload.study.argv import command


@dataclass(frozen=True, slots=True, kw_only=True)
class DryStep:
    """One step and what it takes."""

    step: str
    command: str
    takes: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Dry:
    """What a matrix would do."""

    cells: tuple[tuple[str, str, str], ...]
    """Model, configuration, workload."""
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    steps: tuple[DryStep, ...]
    calls: int
    starts: int
    minutes: float
    usd: float | None


def dry(parts: Sequence[Part]) -> Dry:
    """Add up what the parts of a matrix take."""
    steps = [(part, step, part.estimates[step.name]) for part in parts for step in part.steps]
    prices = [takes.usd for _, _, takes in steps if takes.usd is not None]
    return Dry(
        cells=tuple((part.name, arm, workload.name) for part in parts for arm in part.arms for workload in part.matrix.workloads),
        left_out=tuple(each for part in parts for each in part.left_out),
        notes=tuple(note for part in parts for note in part.notes),
        steps=tuple(DryStep(step=step.key, command=_command(part, step), takes=takes) for part, step, takes in steps),
        calls=sum(takes.calls or 0 for _, _, takes in steps),
        starts=sum(takes.starts for _, _, takes in steps),
        minutes=sum(takes.minutes for _, _, takes in steps),
        usd=sum(prices) if prices else None,
    )


def _command(part: Part, step: Step) -> str:
    """Return the command line that runs the step by itself."""
    places = part.places
    database = str(places.database(part.name))
    if step.study is not None:
        return command(step.study, db=database)
    policy = ("--policy", str(places.policy)) if part.matrix.policy else ()
    return shlex.join(("agentload", "report", database, "-o", str(places.report(part.name)), *policy))


def printed(matrix: Matrix, parts: Sequence[Part]) -> str:
    """Return the same for people."""
    return "\n".join(_lines(matrix, parts, dry(parts)))


def _lines(matrix: Matrix, parts: Sequence[Part], found: Dry) -> Iterator[str]:
    workloads = ", ".join(each.name for each in matrix.workloads)
    yield f"{matrix.name}: {len(found.cells)} cells"
    for part in parts:
        yield f"  {part.name}: {', '.join(part.arms)} × {workloads}"
    for each in found.left_out:
        yield f"  {each.model}: {each.config} is left out: {each.why}"
    yield from (f"  {note}" for note in found.notes)
    yield ""
    yield from table(("step", "calls", "starts", "minutes", "USD"), [row for part in parts for row in _rows(part)])
    yield ""
    cost = "" if found.usd is None else f", {found.usd:,.2f} USD"
    more = " and those of the searches" if any(each.takes.calls is None for each in found.steps) else ""
    yield f"{found.calls:,} calls{more}, {found.starts} starts of servers, {about(found.minutes)}{cost}"
    yield (
        f"assumed: {ASSUMED_TOKEN_S * 1000:g} ms a token, {ASSUMED_PREFILL_TOKENS_PER_S:,.0f} new prompt tokens a second, "
        f"{matrix.server.start_minutes:g} min a start"
    )
    yield "nothing was started (--dry-run)"


def _rows(part: Part) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield a row a kind of step: a search has a step for each configuration and workload."""
    for kind in dict.fromkeys(step.kind for step in part.steps if step.kind != "report"):
        takes = [part.estimates[step.name] for step in part.steps if step.kind == kind]
        calls = [each.calls for each in takes]
        prices = [each.usd for each in takes if each.usd is not None]
        yield (
            f"{part.name}: {kind}" + (f", {len(takes)} searches" if kind == "concurrency" else ""),
            f"{sum(each or 0 for each in calls):,}" if any(calls) else "–",
            str(sum(each.starts for each in takes) or "–"),
            f"{sum(each.minutes for each in takes):,.0f}",
            f"{sum(prices):,.2f}" if prices else "–",
        )
