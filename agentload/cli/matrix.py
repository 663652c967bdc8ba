"""Matrices: what one would do, and doing it."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._lazy import needs
from agentload.cli._print import notice, print_json, table
from agentload.errors import AgentloadError, UsageError
from agentload.layout.cost import about
from agentload.layout.timeline import ASSUMED_PREFILL_TOKENS_PER_S, ASSUMED_TOKEN_S
from agentload.matrix.described import LeftOut, Matrix, Places
from agentload.matrix.parts import parts, traces_of
from agentload.matrix.play import ended, play
from agentload.matrix.read import preset_text, read_matrix
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


def _dry(parts: Sequence[Part]) -> Dry:
    """Add up what the parts of a matrix take."""
    steps = [(part, step, part.estimates[step.name]) for part in parts for step in part.steps]
    prices = [takes.usd for _, _, takes in steps if takes.usd is not None]
    return Dry(
        cells=tuple(
            (part.name, arm, workload.name)
            for part in parts
            for arm in part.arms
            for workload in part.matrix.workloads
        ),
        left_out=tuple(each for part in parts for each in part.left_out),
        notes=tuple(note for part in parts for note in part.notes),
        steps=tuple(
            DryStep(step=step.key, command=_command(part, step), takes=takes)
            for part, step, takes in steps
        ),
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
    return shlex.join(
        ("agentload", "report", database, "-o", str(places.report(part.name)), *policy)
    )


def _lines(matrix: Matrix, parts: Sequence[Part]) -> Iterator[str]:
    found = _dry(parts)
    yield f"{matrix.name}: {len(found.cells)} cells"
    for part in parts:
        yield (
            f"  {part.name}: {', '.join(part.arms)} × "
            f"{', '.join(each.name for each in part.matrix.workloads)}"
        )
    for each in found.left_out:
        yield f"  {each.model}: {each.config} is left out: {each.why}"
    yield from (f"  {note}" for note in found.notes)
    yield ""
    yield from table(
        ("step", "calls", "starts", "minutes", "USD"),
        [row for part in parts for row in _rows(part)],
    )
    yield ""
    cost = "" if found.usd is None else f", {found.usd:,.2f} USD"
    more = (
        " and those of the searches"
        if any(each.takes.calls is None for each in found.steps)
        else ""
    )
    yield (
        f"{found.calls:,} calls{more}, {found.starts} starts of servers, "
        f"{about(found.minutes)}{cost}"
    )
    yield (
        f"assumed: {ASSUMED_TOKEN_S * 1000:g} ms a token, "
        f"{ASSUMED_PREFILL_TOKENS_PER_S:,.0f} new prompt tokens a second, "
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


@needs(
    {
        "model": ("preset",),
        **dict.fromkeys(("out", "only", "minutes", "dry_run", "json"), ("file",)),
    }
)
def matrix(
    *,
    file: Annotated[Path | None, typer.Argument(help="The matrix, in YAML.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Print a matrix to begin with: mini-lab or lecture-plan.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="--preset: the model to serve, a name or a folder.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for all of it; next to the file and of its name when omitted.",
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="MODEL, or MODEL/CONFIG: that one alone, with the reference.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Stop each step when its share of this many minutes is over, and decide on "
            "what is there."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print cells, steps, calls, minutes and cost; start nothing."
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print what would be done, or the record, as JSON.")
    ] = False,
) -> None:
    """Try models × configurations × workloads in one command that can be resumed, and decide.

    The file says which models, which settings of their servers (any of vLLM's may be compared),
    which workloads, and what is measured. The servers of a model take turns; what fails is written
    down and the others continue. Stopped, the same command resumes. It ends in a report for each
    model and one page with the record of all: what to use, avoid, calibrate and test further.

    For example:

        agentload matrix --preset mini-lab --model Qwen/Qwen3-8B | tee matrix.yaml

        agentload matrix matrix.yaml --dry-run

        agentload matrix matrix.yaml --out build/matrix --minutes 240

        agentload matrix matrix.yaml --only chat/fp8
    """
    if (file is None) == (preset is None):
        raise UsageError(
            "matrix takes either a file or --preset",
            hint="agentload matrix --preset mini-lab > matrix.yaml",
        )
    if preset is not None:
        print(preset_text(preset, model=model), end="")
        return
    assert file is not None, "one of the two"
    if minutes is not None and minutes <= 0:
        raise UsageError(f"--minutes must be positive, got {minutes:g}")
    described = read_matrix(file)
    places = Places(
        out or (file.with_suffix("") if file.suffix else file.with_name(f"{file.name}.matrix"))
    )
    traces = traces_of(described)
    if dry_run:
        found = parts(described, places, traces, only=only)
        print_json(_dry(found)) if json else print(*_lines(described, found), sep="\n")
        return
    played = play(described, places, traces, only=only, minutes=minutes, told=notice)
    made, paths = ended(described, played, places, traces)
    if json:
        print(paths[-1].read_text(encoding="utf-8"), end="")
    else:
        for each in made.models:
            print(f"{each.model}: {each.headline}")
        print(*paths, sep="\n")
    names = {part.name for part in played.parts}
    failed = [each for each in made.missing if each.is_failure and each.model in names]
    if failed:
        raise AgentloadError(
            f"{len(failed)} of it failed: "
            f"{', '.join(f'{each.model}/{each.what}' for each in failed)}",
            hint=f"{paths[0]} says why; the same command tries again what can be fixed",
        )
