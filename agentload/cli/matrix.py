"""Try models × configurations × workloads in one command that can be gone on with, and decide.

The file says which models, which settings of their servers (any of vLLM's may be compared), which workloads, and what is measured. The
servers of a model take turns; what fails is written down and the others go on. Stopped, the same command goes on from there. It ends in a
report for each model and one page with the record of all: what to use, avoid, calibrate and test further.

For example:

    agentload matrix --preset mini-lab --model Qwen/Qwen3-8B | tee matrix.yaml

    agentload matrix matrix.yaml --dry-run

    agentload matrix matrix.yaml --out build/matrix --minutes 240

    agentload matrix matrix.yaml --only chat/fp8
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._matrix import dry, printed
from agentload.cli._output import print_json
from agentload.errors import AgentloadError, UsageError
from agentload.matrix.described import Places
from agentload.matrix.parts import parts, traces_of
from agentload.matrix.play import ended, play
from agentload.matrix.read import preset_text, read_matrix

NEEDS: Final = {"model": ("preset",), **dict.fromkeys(("out", "only", "minutes", "dry_run", "json"), ("file",))}


def run(
    *,
    file: Annotated[Path | None, typer.Argument(help="The matrix, in YAML.")] = None,
    preset: Annotated[str | None, typer.Option(help="Print a matrix to begin with: mini-lab or lecture-plan.")] = None,
    model: Annotated[str | None, typer.Option(help="--preset: the model to serve, a name or a folder.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for all of it; beside the file and of its name when omitted.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="MODEL, or MODEL/CONFIG: that one alone beside the reference.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Stop each step when its share of so many is over, and decide on what is there.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print cells, steps, calls, minutes and cost; start nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what would be done, or the record, as JSON.")] = False,
) -> None:
    if (file is None) == (preset is None):
        raise UsageError("matrix takes either a file or --preset", hint="agentload matrix --preset mini-lab > matrix.yaml")
    if preset is not None:
        print(preset_text(preset, model=model), end="")
        return
    assert file is not None, "one of the two"
    if minutes is not None and minutes <= 0:
        raise UsageError(f"--minutes must be positive, got {minutes:g}")
    matrix = read_matrix(file)
    places = Places(out or _beside(file))
    traces = traces_of(matrix)
    if dry_run:
        found = parts(matrix, places, traces, only=only)
        print_json(dry(found)) if json else print(printed(matrix, found))
        return
    played = play(matrix, places, traces, only=only, minutes=minutes, told=_told)
    made, paths = ended(matrix, played, places, traces)
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
            f"{len(failed)} of it failed: {', '.join(f'{each.model}/{each.what}' for each in failed)}",
            hint=f"{paths[0]} says why; the same command tries again what can be mended",
        )


def _beside(file: Path) -> Path:
    return file.with_suffix("") if file.suffix else file.with_name(f"{file.name}.matrix")


def _told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
