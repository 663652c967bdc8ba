"""The tour: command lines that you can paste, played
in virtual time, each stop of it ending in a decision.

A stop says what is asked and by which commands; what comes of it is the advisor's.
"""

import io
import shutil
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

import typer

from agentload.cli.main import run
from agentload.model.record import Record
from agentload.report.record import Measured, record_of
from agentload.report.sections.arms import need, words
from agentload.verdict.policy import Setting


class Stop(Record):
    """One question of the tour, and the commands that answer it."""

    name: str
    """Of its run and its folder."""
    asks: str
    commands: tuple[str, ...]
    is_live: bool = False
    """Takes the time that it measures, so its progress is shown."""


LIVE: Final = Stop(
    name="live",
    asks="Gemma with heads of 256 and prompts of 10,000 tokens: two emulated servers over real "
    "sockets",
    commands=(
        (
            "replay demo-prefill --endpoints emulated:{profile} --pairs 4 --sessions "
            "{sessions} --seed {seed} --run-id {name}"
        ),
    ),
    is_live=True,
)
LOADS: Final = (3, 1)
"""Sessions at once: a machine that is too busy for the first number may keep up with the next."""
_CHATS: Final = "--max-context 64k --capacity 20 --duration 240 --pairs 4 --wait-cap user=60"
"""As many agents at once, each in the middle of a long chat."""
_SHIFTED: Final = "llama-3.1-8b-h100-calibrated --arms bf16,fp8-default-scales"
STOPS: Final = (
    Stop(
        name="long-chat",
        asks="Llama 3.1 8B: 20 agents in long chats on one GPU",
        commands=(
            f"simulate chat --profile llama-3.1-8b-h100 --arms bf16,fp8 {_CHATS} --run-id {{name}}",
            (
                "eval --profile llama-3.1-8b-h100 --arms bf16,fp8 --tasks needle --contexts "
                "8k..64k --items 2400 --into {name}"
            ),
        ),
    ),
    Stop(
        name="long-prefill",
        asks="Gemma with heads of 256: questions over 20,000 tokens of documents",
        commands=(
            (
                "simulate rag --profile gemma-4-e2b-h100 --arms bf16,fp8 --sessions 8 "
                "--wait-cap user=5 --run-id {name}"
            ),
        ),
    ),
    Stop(
        name="default-scales",
        asks="Llama again: the same chats, with FP8 scales that nobody calibrated (an invented "
        "arm)",
        commands=(
            f"simulate chat --profile {_SHIFTED} {_CHATS} --run-id {{name}}",
            (
                f"eval --profile {_SHIFTED} --tasks needle --contexts 8k..64k --items 600 "
                f"--into {{name}}"
            ),
        ),
    ),
    Stop(
        name="old-kernel",
        asks="gpt-oss on vLLM 0.10.2, with its attention kernel",
        commands=(
            "simulate demo-rag demo-chat --profile gpt-oss-20b-h100-old-kernel --run-id {name}",
        ),
    ),
    Stop(
        name="few-calls",
        asks="gpt-oss, FP8 for the layers without a window: two classes, and too few calls",
        commands=(
            (
                "simulate demo-rag demo-chat --profile gpt-oss-20b-h100 --arms "
                "bf16,fp8-skip-sw --pairs 3 --run-id {name}"
            ),
        ),
    ),
    Stop(
        name="short-chat",
        asks="Llama 3.1 8B: short chats",
        commands=(
            (
                "simulate short_chat --profile llama-3.1-8b-h100 --arms bf16,fp8 --sessions 8 "
                "--wait-cap user=5 --run-id {name}"
            ),
        ),
    ),
)


def visit(stop: Stop, folder: Path, **said: object) -> Measured:
    """Print and carry out the commands of a stop; return
    what was decided. *folder* keeps its rows and its report.
    """
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "run.duckdb"
    print(f"\n{stop.asks}")
    for line in (
        *(f"{each.format(name=stop.name, **said)} --db {database}" for each in stop.commands),
        f"report {database} --out {folder}",
    ):
        print(f"  $ agentload {line}", flush=True)
        with (
            redirect_stdout(io.StringIO()),
            nullcontext() if stop.is_live else redirect_stderr(io.StringIO()),
        ):
            if code := run(line.split()):
                raise typer.Exit(code)
    found = record_of(database, stop.name, model=stop.name, setting=Setting(), report=stop.name)
    print(f"  {found.document.statement}\n  {found.document.why}")
    decision = found.document.decision
    if len(decision.classes) > 1:
        each_class = (
            f"{each.workload} {words(each)}{need(decision, each)}" for each in decision.classes
        )
        print(f"  Class by class: {'; '.join(each_class)}")
    return found


def live(out: Path, *, profile: str, seed: int) -> Measured:
    """Return the first live comparison whose requests left
    in time; the last one, if this machine never keeps up.
    """
    for sessions in LOADS:
        shutil.rmtree(out / LIVE.name, ignore_errors=True)
        found = visit(LIVE, out / LIVE.name, profile=profile, sessions=sessions, seed=seed)
        if all(
            gate.status != "fail" for gate in found.document.decision.gates if gate.name == "client"
        ):
            break
        print(
            "  This machine is too busy to send requests in time: "
            + ("again, with fewer at once" if sessions != LOADS[-1] else "see agentload doctor")
        )
    return found
