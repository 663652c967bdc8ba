"""Carry out a matrix file, or print what that would do and cost."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._lazy import needs
from agentload.cli._print import figure, notice, print_json, table
from agentload.errors import AgentloadError, UsageError
from agentload.layout.cost import about
from agentload.layout.timeline import ASSUMED_PREFILL_TOKENS_PER_S, ASSUMED_TOKEN_S
from agentload.matrix.described import Matrix, MatrixFolder
from agentload.matrix.pages import write_page
from agentload.matrix.parts import parts, traces_of
from agentload.matrix.past import ModelProgress
from agentload.matrix.play import play
from agentload.matrix.read import preset_text, read_matrix
from agentload.matrix.steps import MatrixStep, ModelPart, total
from agentload.report.matrix import MatrixPage
from agentload.study.argv import command


def _json(parts: Sequence[ModelPart]) -> dict[str, object]:
    """Return what a matrix would do, for machines."""
    steps = [(part, step) for part in parts for step in part.steps]
    whole = total(part.estimates[step.name] for part, step in steps)
    return {
        "cells": list(_cells(parts)),
        "left_out": [each for part in parts for each in part.left_out],
        "notes": [note for part in parts for note in part.notes],
        "steps": [
            {"step": step.key, "command": _command(part, step), "takes": part.estimates[step.name]}
            for part, step in steps
        ],
        "calls": whole.calls or 0,
        "starts": whole.starts,
        "minutes": whole.minutes,
        "usd": whole.usd,
    }


def _cells(parts: Sequence[ModelPart]) -> Iterator[tuple[str, str, str]]:
    """Yield each model, configuration and workload."""
    for part in parts:
        for arm in part.arms:
            yield from ((part.name, arm, workload.name) for workload in part.matrix.workloads)


def _command(part: ModelPart, step: MatrixStep) -> str:
    """Return the command line that runs the step by itself."""
    places = part.places
    database = str(part.places.database(part.name))
    if step.study is not None:
        return command(step.study, db=database)
    policy = ("--policy", str(places.policy)) if part.matrix.policy else ()
    report = str(places.report(part.name))
    return shlex.join(("agentload", "report", database, "-o", report, *policy))


def _lines(matrix: Matrix, parts: Sequence[ModelPart]) -> Iterator[str]:
    yield f"{matrix.name}: {len(list(_cells(parts)))} cells"
    for part in parts:
        names = ", ".join(each.name for each in part.matrix.workloads)
        yield f"  {part.name}: {', '.join(part.arms)} × {names}"
    for part in parts:
        for each in part.left_out:
            yield f"  {each.model}: {each.config} is left out: {each.why}"
    for part in parts:
        yield from (f"  {note}" for note in part.notes)
    yield ""
    rows = [row for part in parts for row in _rows(part)]
    yield from table(("step", "calls", "starts", "minutes", "USD"), rows)
    yield ""
    costs = [cost for part in parts for cost in part.estimates.values()]
    whole = total(costs)
    price = "" if whole.usd is None else f", {whole.usd:,.2f} USD"
    is_open = any(cost.calls is None for cost in costs)
    more = " and those of the searches" if is_open else ""
    starts = f"{whole.starts} starts of servers"
    yield f"{whole.calls or 0:,} calls{more}, {starts}, {about(whole.minutes)}{price}"
    yield (
        f"assumed: {ASSUMED_TOKEN_S * 1000:g} ms a token, "
        f"{ASSUMED_PREFILL_TOKENS_PER_S:,.0f} new prompt tokens a second, "
        f"{matrix.server.start_minutes:g} min a start"
    )
    yield "nothing was started (--dry-run)"


def _rows(part: ModelPart) -> Iterator[tuple[str, ...]]:
    """Yield a row for each kind of step; the searches of all arms and workloads are added up."""
    for kind in dict.fromkeys(step.kind for step in part.steps if step.kind != "report"):
        costs = [part.estimates[step.name] for step in part.steps if step.kind == kind]
        taken = total(costs)
        searches = f", {len(costs)} searches" if kind == "concurrency" else ""
        yield (
            f"{part.name}: {kind}{searches}",
            f"{taken.calls:,}" if taken.calls else "–",
            str(taken.starts or "–"),
            f"{taken.minutes:,.0f}",
            figure(taken.usd, ",.2f"),
        )


@needs({"model": ("preset",), **dict.fromkeys(("out", "only", "minutes", "json"), ("file",))})
def matrix(
    *,
    file: Annotated[Path | None, typer.Argument(help="The matrix, in YAML.")] = None,
    preset: Annotated[
        str | None, "Print a starter matrix: mini-lab, lecture-plan or agentx."
    ] = None,
    model: Annotated[str | None, "--preset: the model to serve, a name or a folder."] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for all of it; next to the file and of its name when omitted.",
        ),
    ] = None,
    only: Annotated[
        str | None, "MODEL, or MODEL/CONFIG: that one alone, with the reference."
    ] = None,
    minutes: Annotated[
        float | None,
        (
            "Stop each step when its share of this many minutes is over, and decide on "
            "what is there."
        ),
    ] = None,
    dry_run: Annotated[bool, "Print cells, steps, calls, minutes and cost; start nothing."] = False,
    json: Annotated[bool, "Print what would be done, or the record, as JSON."] = False,
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
    if preset is not None and dry_run:
        raise UsageError(
            "--preset prints a starter matrix, and --dry-run takes its file",
            hint=f"agentload matrix --preset {preset} > {preset}.yaml && "
            f"agentload matrix {preset}.yaml --dry-run",
        )
    if preset is not None:
        print(preset_text(preset, model=model), end="")
        return
    assert file is not None, "one of the two"
    if minutes is not None and minutes <= 0:
        raise UsageError(f"--minutes must be positive, got {minutes:g}")
    described = read_matrix(file)
    places = MatrixFolder(out or _folder(file))
    traces = traces_of(described)
    if dry_run:
        found = parts(described, places, traces, only=only)
        print_json(_json(found)) if json else print(*_lines(described, found), sep="\n")
        return
    played = play(described, places, traces, only=only, minutes=minutes, told=notice)
    made, paths = write_page(described, played, places, traces)
    if json:
        print(paths[-1].read_text(encoding="utf-8"), end="")
    else:
        for each in made.models:
            print(f"{each.model}: {each.document.headline}")
        print(*paths, sep="\n")
    _check_played(played, made, page=paths[0])


def _folder(file: Path) -> Path:
    """Return the folder of a matrix: next to its file and of its name."""
    if file.suffix:
        return file.with_suffix("")
    return file.with_name(f"{file.name}.matrix")


def _check_played(played: Sequence[ModelProgress], made: MatrixPage, *, page: Path) -> None:
    """Raise an error that names what failed of the models that were played."""
    names = {each.part.name for each in played}
    failed = [each for each in made.missing if each.is_failure and each.model in names]
    if failed:
        raise AgentloadError(
            f"{len(failed)} of it failed: "
            f"{', '.join(f'{each.model}/{each.what}' for each in failed)}",
            hint=f"{page} says why; the same command tries again what can be fixed",
        )
