"""Ask every endpoint the same questions and grade the answers: is a cheaper KV cache still right?

Items are made from a seed, with nothing to download: equal bytes, temperature 0 and the same seed on every endpoint. The first endpoint
is the reference. What was answered is stored at once; Ctrl-C lets what is in flight come to its end, and `--resume` goes on from there.

For example:

    agentload eval --endpoints emulated:llama-3.1-8b-h100-old-kernel --contexts 8k..128k --items 100 --db demo.duckdb

    agentload eval --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --contexts 4k..128k --items 1380 --aa bf16

    agentload eval --endpoints arms.yaml --tasks needle,tool_log,mrcr_like-4 --contexts 32k,64k --depths 5 --dry-run

    agentload eval --endpoints endpoints.yaml --launch --into 20261120-074205-1f3a
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._asking import Progress, asked, describe, summary
from agentload.cli._launching import LOGS, START_S, Launch, Logs, StartTimeout, launching
from agentload.cli._output import print_json
from agentload.cli._playing import concluded
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.kept import kept
from agentload.endpoints.read import Emulated, read
from agentload.errors import InterruptError, UsageError
from agentload.prompts.tokenizer import Tokenizer
from agentload.run.grades import summarise
from agentload.run.inquiry import Asked, Eval
from agentload.run.lengths import described, from_tokenizer, measured
from agentload.run.questions import DEFAULT_TASKS, Asking, Generated, Supplied, asking, digest, generated, questions_cost, supplied
from agentload.run.record import new_run_id, resume_command, typed_command
from agentload.run.relay import Launching
from agentload.run.servers import emulated, with_control
from agentload.study.quantity import lengths

NEEDS: Final = dict.fromkeys(("logs", "start_timeout"), ("launch",))
# Emulated answers depend on the prompt alone: nobody need wait for them.
EMULATED_SPEED = 1000.0


def run(
    *,
    endpoints: Annotated[str, typer.Option(help="a=URL,b=URL, a YAML file, or emulated:PROFILE[/ARM+ARM]; the first is the reference.")],
    tasks: Annotated[str, typer.Option(help="Tasks, separated by commas.")] = ",".join(DEFAULT_TASKS),
    own: Annotated[Path | None, typer.Option(help="JSON lines of your own items, instead of tasks: messages and a grader.")] = None,
    contexts: Annotated[str, typer.Option(help="Lengths: 4k..128k doubles from 4k to 128k; 8k,64k are just these.")] = "4k..32k",
    depths: Annotated[
        int, typer.Option(help="At how many places of the context what is asked for stands, from its start to its end.")
    ] = 10,
    items: Annotated[int | None, typer.Option(help="Different items in all; one for each task, length and depth when omitted.")] = None,
    repetitions: Annotated[int, typer.Option(help="How often each item is asked, each time with another seed.")] = 1,
    db: Annotated[Path, typer.Option(help="DuckDB file; it is made if it does not exist.")] = Path("agentload.duckdb"),
    model: Annotated[str | None, typer.Option(help="Model to ask for; the only one served when omitted.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds make equal items.")] = 0,
    concurrency: Annotated[int, typer.Option(help="Items in flight; each is asked of one endpoint after the other.")] = 8,
    thinking: Annotated[int, typer.Option(help="Tokens for thinking, on top of the cap of each answer.")] = 0,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="tokenizer.json of the model: exact lengths; without it the first endpoint counts two prompts a task."),
    ] = None,
    aa: Annotated[str | None, typer.Option(help="Ask this endpoint a second time under another name: how far equals differ.")] = None,
    resume: Annotated[str | None, typer.Option(help="Go on with this run: what every endpoint answered is not asked again.")] = None,
    into: Annotated[
        str | None, typer.Option(help="Add the answers to this run of a replay on the same endpoints, for one decision.")
    ] = None,
    launch: Launch = False,
    logs: Logs = LOGS,
    start_timeout: StartTimeout = START_S,
    force: Annotated[
        bool, typer.Option("--force", help="Ask servers that are not what the arms file expects, or what the run had; a caveat is kept.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be asked and what it costs; send nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    if resume is not None and into is not None:
        raise UsageError("--resume goes on with a run of eval, --into adds to another: give one of them")
    if concurrency < 1 or thinking < 0:
        raise UsageError(f"--concurrency must be at least 1 and --thinking at least 0, got {concurrency} and {thinking}")
    asked_at = lengths(contexts, option="--contexts")
    made = asking(tasks=tasks.split(","), contexts=asked_at, depths=depths, items=items, repetitions=repetitions, seed=seed)
    wanted = read(endpoints, model=model, key_env=api_key_env)
    starting = launching(launch, wanted, logs=logs, start_s=start_timeout)
    with _served(wanted, seed=seed, is_dry=dry_run) as reached:
        served = with_control(reached, aa)
        with _running(served[0], starting, is_needed=own is None and tokenizer is None and not dry_run):
            source, what = _source(own, made, None if isinstance(wanted, Emulated) or dry_run else served[0], tokenizer)
        expected = questions_cost(source, arms=len(served), concurrency=concurrency, thinking_tokens=thinking)
        if dry_run:
            print_json(expected) if json else print(describe(source.questions(), expected, [e.name for e in served]))
            return
        evaluation = Eval(
            run=resume or into or new_run_id(),
            asked=source,
            endpoints=served,
            database=db,
            seed=seed,
            command=typed_command(),
            options={**what, "thinking": thinking, "arms": [e.name for e in served]},
            concurrency=concurrency,
            thinking_tokens=thinking,
            goes_on="resume" if resume else "join" if into else "new",
            launching=starting,
            is_forced=force,
        )
        ended = asked(evaluation, Progress(source.questions(), arms=len(served)))
    _report(ended, db, as_json=json)


def _source(
    own: Path | None, made: Asking, reference: Endpoint | None, tokenizer: Path | None
) -> tuple[Generated | Supplied, dict[str, object]]:
    """Return what is asked, and what of it is kept with the run."""
    if own is not None:
        return supplied(own, repetitions=made.repetitions), {"own": own.name, "digest": digest(own), "repetitions": made.repetitions}
    measured_by: dict[str, Tokenizer] = {}
    if tokenizer is not None:
        measured_by = from_tokenizer(tokenizer, made.tasks)
    elif reference is not None:  # the emulated model's tokens are words
        measured_by = asyncio.run(measured(reference, made.tasks, seed=made.seed))
    return generated(made, lengths=measured_by), {**asdict(made), "lengths": described(measured_by)}


@contextlib.contextmanager
def _running(reference: Endpoint, starting: Launching | None, *, is_needed: bool) -> Iterator[None]:
    """Have the reference's server run while it is asked how many tokens texts have."""
    with contextlib.ExitStack() as stack:
        if starting is not None and is_needed:
            stack.enter_context(kept(reference, logs=starting.logs / "lengths", start_s=starting.start_s)).up()
        yield


@contextlib.contextmanager
def _served(wanted: tuple[Endpoint, ...] | Emulated, *, seed: int, is_dry: bool) -> Iterator[tuple[Endpoint, ...]]:
    if not isinstance(wanted, Emulated):
        yield wanted
        return
    with emulated(wanted, noise=False, seed=seed, dry=is_dry, speed=EMULATED_SPEED) as served:
        yield served


def _report(ended: Asked, db: Path, *, as_json: bool) -> None:
    if ended.load_error is None:
        found = summarise(db, ended.run_id)
        print_json(found) if as_json else print(summary(found))
    stopped = None
    if ended.left:
        left = f"run {ended.run_id} was stopped with {ended.left:,} questions left; what was answered is stored"
        stopped = InterruptError(left, hint=f"go on with: {resume_command(ended.run_id)}")
    concluded(ended.run_id, db, load_error=ended.load_error, stopped=stopped)
    if not as_json:
        print(f"\nNext: agentload advise {db} --run {ended.run_id}")
