"""Replay a trace against endpoints and store every call.

The trace is cut into blocks of whole sessions; each block is played on every arm, in an order that is drawn, and each finished pair of
blocks is stored. Ctrl-C lets what is in flight come to its end, stores it and exits with 130; `--resume` goes on from there.

For example:

    agentload replay rag --endpoints emulated:llama-3.1-8b-h100 --db demo.duckdb

    agentload replay traces/rag.jsonl --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --model M --db agentload.duckdb

    agentload replay traces/chat.jsonl --endpoints arms.yaml --sessions 16 --wait-cap user=20 --dry-run

    agentload replay rag --endpoints arms.yaml --launch --restarts 3
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentload.cli import _load as opt
from agentload.cli._dry import describe
from agentload.cli._launching import LOGS, START_S, Launch, Logs, Restarts, StartTimeout, launching
from agentload.cli._output import print_json
from agentload.cli._playing import played
from agentload.cli._progress import Progress
from agentload.cli._reached import reached
from agentload.endpoints.read import Emulated, read
from agentload.errors import InterruptError, UsageError
from agentload.experiment.control import with_control
from agentload.experiment.cost import cost
from agentload.experiment.load_traces import load_traces
from agentload.experiment.plan import plan
from agentload.experiment.record import new_run_id, typed_command
from agentload.experiment.replay import Played, Replay
from agentload.experiment.starts import with_starts
from agentload.experiment.summary import summarise
from agentload.live.raw import Which
from agentload.model.commands import Limits

SECOND = 1_000_000_000


def run(
    traces: Annotated[list[str], typer.Argument(help="Trace files, or names of shipped traces; several are played as one mix.")],
    *,
    endpoints: Annotated[str, typer.Option(help="a=URL,b=URL, a YAML file, or emulated:PROFILE[/ARM+ARM].")],
    db: Annotated[Path, typer.Option(help="DuckDB file; it is made if it does not exist.")] = Path("agentload.duckdb"),
    model: Annotated[str | None, typer.Option(help="Model to ask for; the only one served when omitted.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="The model's tokenizer.json, or its folder, for exact lengths where no server counts tokens.")
    ] = None,
    pairs: opt.Pairs = 6,
    design: opt.Design = "interleaved",
    cache: opt.Cache = "cold",
    sessions: opt.Sessions = None,
    rate: opt.Rate = None,
    cv: opt.Cv = 1.0,
    speed: opt.Speed = 1.0,
    max_in_flight: opt.MaxInFlight = None,
    wait_scale: opt.WaitScales = None,
    wait_cap: opt.WaitCaps = None,
    max_calls: opt.MaxCalls = None,
    max_tokens: opt.MaxTokens = None,
    duration: opt.Duration = None,
    cancel_share: opt.CancelShare = 0.0,
    history: opt.History = "fixed",
    retries: opt.Retries = 0,
    seed: opt.Seed = 0,
    first_timeout: Annotated[float, typer.Option(help="Seconds until the first byte of an answer.")] = 600.0,
    idle_timeout: Annotated[float, typer.Option(help="Seconds of silence within a stream.")] = 120.0,
    total_timeout: Annotated[float, typer.Option(help="Seconds for a whole answer.")] = 3600.0,
    warmup: Annotated[bool, typer.Option("--warmup", help="Play the first block on every arm once before, and leave it out.")] = False,
    aa: Annotated[str | None, typer.Option(help="Play this arm a second time under another name: the noise floor.")] = None,
    on_dead: Annotated[str, typer.Option(help="When an endpoint dies: wait for it (10 min), skip it, or stop.")] = "wait",
    launch: Launch = False,
    restarts: Restarts = None,
    logs: Logs = LOGS,
    start_timeout: StartTimeout = START_S,
    force: Annotated[
        bool, typer.Option("--force", help="Measure servers that are not what the arms file expects; a caveat is kept.")
    ] = False,
    workers: Annotated[
        int, typer.Option(help="Processes that hold connections and journals, for loads that one core cannot carry; such as 2.")
    ] = 1,
    keep_raw: Annotated[
        Which | None, typer.Option(help="Keep the bytes that calls brought, compressed, beside the journals: of failures, or of all.")
    ] = None,
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Emulated endpoints scatter as real servers do.")] = True,
    lenient: Annotated[bool, typer.Option("--lenient", help="Leave out a last line of the trace that was cut short.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and what it costs; send nothing.")] = False,
    resume: Annotated[str | None, typer.Option(help="Go on with this run: finished pairs are not played again.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    load = opt.load(
        sessions=sessions,
        rate=rate,
        cv=cv,
        speed=speed,
        max_in_flight=max_in_flight,
        wait_scale=wait_scale,
        wait_cap=wait_cap,
        max_calls=max_calls,
        max_tokens=max_tokens,
        duration=duration,
        cancel_share=cancel_share,
        history=history,
        retries=retries,
    )
    if workers < 1:
        raise UsageError(f"--workers must be >= 1, got {workers}")
    limits = Limits(first_ns=round(first_timeout * SECOND), idle_ns=round(idle_timeout * SECOND), total_ns=round(total_timeout * SECOND))
    trace, trace_hash = load_traces(traces, lenient=lenient)
    wanted = read(endpoints, model=model, key_env=api_key_env, tokenizer=tokenizer)
    starting = launching(launch, wanted, logs=logs, start_s=start_timeout)
    with reached(wanted, noise=noise, seed=seed, is_dry=dry_run) as found:
        served = with_control(found, aa)
        made = plan(
            trace,
            [endpoint.name for endpoint in served],
            run=resume or new_run_id(),
            seed=seed,
            pairs=pairs,
            warmup=warmup,
            design=opt.design(design),
            cache=opt.cache(cache),
            load=load,
            limits=limits,
        )
        made = made if starting is None else with_starts(made, restarts)
        expected = cost(made)
        if dry_run:
            print_json(expected) if json else print(describe(made, expected))
            return
        replay = Replay(
            plan=made,
            endpoints=served,
            database=db,
            trace_hash=trace_hash,
            command=typed_command(),
            is_resumed=resume is not None,
            on_dead=opt.on_dead(on_dead),
            is_forced=force,
            launching=starting,
            workers=workers,
            keep_raw=keep_raw,
            settings={"traces": traces, "pairs": pairs, "workers": workers, "noise": noise if isinstance(wanted, Emulated) else None},
        )
        ended = played(replay, Progress(expected.calls_by_arm))
    _report(ended, db, as_json=json)


def _report(ended: Played, db: Path, *, as_json: bool) -> None:
    if ended.load_error is not None:
        print(f"warning: the run is in its journal but not in {db}: {ended.load_error}", file=sys.stderr)
        print(f"hint: agentload runs load {ended.run_id} --db {db}", file=sys.stderr)
    else:
        summary = summarise(db, ended.run_id)
        print_json(summary) if as_json else print(summary.text())
    if ended.health.void is not None:
        print(f"warning: timings are void: {ended.health.void}", file=sys.stderr)
    if ended.was_stopped:
        raise InterruptError(
            f"run {ended.run_id} was stopped; what was measured is stored", hint=f"agentload replay … --resume {ended.run_id}"
        )
    if not as_json:
        print(f"\nNext: agentload report {db} --run {ended.run_id}")
