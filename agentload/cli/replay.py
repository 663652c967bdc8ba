"""Replay a trace against endpoints and store every call.

The trace is cut into blocks of whole sessions; each block is played on every arm, in an order that is drawn, and each finished pair of
blocks is stored. Ctrl-C lets what is in flight come to its end, stores it and exits with 130; `--resume` goes on from there.

For example:

    agentload replay demo-rag --endpoints emulated:llama-3.1-8b-h100 --db demo.duckdb

    agentload replay rag --endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --sessions 16 --wait-cap user=5

    agentload replay traces/chat.jsonl --endpoints arms.yaml --sessions 16 --wait-cap user=20 --dry-run

    agentload replay rag --endpoints arms.yaml --launch --restarts 3

    agentload replay rag --endpoints bf16=http://10.0.0.1:8000/v1,fp8=http://10.0.0.2:8000/v1 --design parallel --swap

    agentload replay code --endpoints arms.yaml --capacity 24 --duration 3600 --pairs 2 --wait-cap user=60 --dry-run

    agentload replay chat --endpoints arms.yaml --rate 0.5 --ramp 120 --burst 5x10/60
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli import _load as opt
from agentload.cli._dry import describe, warning
from agentload.cli._launching import LOGS, START_S, Launch, Logs, Restarts, StartTimeout, launching
from agentload.cli._launching import NEEDS as LAUNCH_NEEDS
from agentload.cli._output import print_json
from agentload.cli._playing import concluded, played_in_stages, warned
from agentload.endpoints.places import beginnings
from agentload.endpoints.read import Emulated, read
from agentload.errors import InterruptError, UsageError
from agentload.layout.cost import cost
from agentload.layout.long_run import long_run
from agentload.layout.plan import plan, with_starts
from agentload.live.raw import Which
from agentload.model.commands import Limits
from agentload.model.plan import Load
from agentload.run.past import blocks_of, lasted_s
from agentload.run.play import Played, Replay
from agentload.run.record import new_run_id, resume_command, typed_command
from agentload.run.servers import pools, reached, with_control
from agentload.run.summary import summarise
from agentload.run.traces import load_traces
from agentload.run.vigil import OnDead

SECOND = 1_000_000_000

NEEDS: Final = {**opt.NEEDS, **LAUNCH_NEEDS, "slo": ("capacity",)}


@opt.with_load
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
    swap: opt.Swap = False,
    cache: opt.Cache = "cold",
    load: Load,
    capacity: opt.Capacity = None,
    slo: Annotated[str, typer.Option(help="--capacity: limits in ms that a turn must hold: ttft=2000,tpot=50,turn=30000.")] = opt.SLO,
    seed: opt.Seed = 0,
    first_timeout: Annotated[float, typer.Option(help="Seconds until the first byte of an answer.")] = 600.0,
    idle_timeout: Annotated[float, typer.Option(help="Seconds of silence within a stream.")] = 120.0,
    total_timeout: Annotated[float, typer.Option(help="Seconds for a whole answer.")] = 3600.0,
    warmup: Annotated[bool, typer.Option("--warmup", help="Play the first block on every arm first, also on --resume; left out.")] = False,
    aa: Annotated[str | None, typer.Option(help="Play this arm a second time under another name: the noise floor.")] = None,
    on_dead: Annotated[OnDead, typer.Option(help="When an endpoint dies: wait for it (10 min), skip it, or stop.")] = "wait",
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
    resume: Annotated[
        str | None, typer.Option(help="Go on with this run: finished pairs are not played again; with more --pairs, it is given more.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    if workers < 1:
        raise UsageError(f"--workers must be >= 1, got {workers}")
    limits = Limits(first_ns=round(first_timeout * SECOND), idle_ns=round(idle_timeout * SECOND), total_ns=round(total_timeout * SECOND))
    trace, trace_hash = load_traces(traces, lenient=lenient)
    wanted = read(endpoints, model=model, key_env=api_key_env, tokenizer=tokenizer)
    starting = launching(launch, wanted, logs=logs, start_s=start_timeout)
    with reached(wanted, noise=noise, seed=seed, is_dry=dry_run, machines=2 if swap else 1) as found:
        served = with_control(found, aa)
        fills = None
        if capacity is not None:
            before_s = None if resume is None else lasted_s(db, resume)
            long = long_run(trace, load, agents=capacity, seed=seed, pools=pools(served), lasted_s=before_s)
            trace, load, fills = long.trace, long.load, long.fills
        made = plan(
            trace,
            [endpoint.name for endpoint in served],
            run=resume or new_run_id(),
            seed=seed,
            pairs=pairs,
            warmup=warmup,
            design=design,
            cache=cache,
            load=load,
            limits=limits,
            machines=beginnings(served) if swap or design == "parallel" else (),
            swap=swap,
            whole=capacity is not None,
            blocks=None if resume is None else blocks_of(db, resume),
        )
        made = made if starting is None else with_starts(made, restarts)
        settings = {"traces": traces, "pairs": pairs, "workers": workers, "noise": noise if isinstance(wanted, Emulated) else None}
        if fills is not None:
            settings["capacity"] = {"agents": capacity, "slo": asdict(opt.limits(slo, 0.95)), "fill_minutes": fills.minutes}
        expected = cost(made)
        if dry_run:
            print_json(expected if fills is None else asdict(expected) | {"fills": fills}) if json else print(
                describe(made, expected, fills)
            )
            return
        told = fills.warning() if fills is not None else warning(expected) if resume is None else None
        if told is not None:
            print(f"warning: {told}", file=sys.stderr)
        replay = Replay(
            plan=made,
            endpoints=served,
            database=db,
            trace_hash=trace_hash,
            command=typed_command(),
            is_resumed=resume is not None,
            on_dead=on_dead,
            is_forced=force,
            launching=starting,
            workers=workers,
            keep_raw=keep_raw,
            settings={**settings, "calls": expected.calls_by_arm},
        )
        ended = played_in_stages(replay)
    _report(ended, db, as_json=json)


def _report(ended: Played, db: Path, *, as_json: bool) -> None:
    warned(ended)
    if ended.load_error is None:
        summary = summarise(db, ended.run_id)
        print_json(summary) if as_json else print(summary.text())
    stopped = None
    if ended.was_stopped:
        stored = f"run {ended.run_id} was stopped; what was measured is stored"
        stopped = InterruptError(stored, hint=f"go on with: {resume_command(ended.run_id)}")
    concluded(ended.run_id, db, load_error=ended.load_error, stopped=stopped)
    if not as_json:
        print(f"\nNext: agentload report {db} --run {ended.run_id}")
