"""Measure how latency grows with context, or how many sessions an endpoint carries before trouble.

With --contexts, calls of growing length run one at a time, the arms interleaved: the lines through their token latencies say where one
arm overtakes another. With --concurrency, sessions of a trace run side by side, ever more of them, until the server preempts, queues,
fails or breaks the service level; the number that just holds is bracketed. With --into either is kept beside a replay, for its report.

For example:

    agentload sweep --contexts 1k..64k --endpoints endpoints.yaml

    agentload sweep --contexts 512..8k --endpoints endpoints.yaml --launch --into 20261120-074205-1f3a

    agentload sweep --concurrency --trace traces/chat.jsonl --endpoints endpoints.yaml --slo ttft=2000,tpot=50
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli import _load as opt
from agentload.cli._dry import describe
from agentload.cli._launching import LOGS, START_S, Launch, Logs, Restarts, StartTimeout, launching
from agentload.cli._launching import NEEDS as LAUNCH_NEEDS
from agentload.cli._output import print_json
from agentload.cli._playing import concluded, played, warned
from agentload.cli._searching import described, require, searched
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify_all
from agentload.endpoints.read import read
from agentload.errors import InterruptError, PlanError, UsageError
from agentload.layout.cost import cost
from agentload.layout.plan import plan, with_starts
from agentload.layout.traces import SMALLEST, sweep
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.plan import ClosedLoop, Load
from agentload.run.capacity import keep_searches
from agentload.run.crowd import Crowd
from agentload.run.past import beside, taken
from agentload.run.play import Replay
from agentload.run.record import new_run_id, typed_command
from agentload.run.servers import reached
from agentload.run.summary import summarise
from agentload.run.traces import load_traces
from agentload.run.trial import Limits
from agentload.study.quantity import lengths

NEEDS: Final = {
    **LAUNCH_NEEDS,
    **dict.fromkeys(("pairs", "output", "dry_run"), ("context",)),
    **dict.fromkeys(("trace", "start", "seconds", "slo", "share", "wait_cap"), ("concurrency",)),
}


def run(
    *,
    endpoints: Annotated[str, typer.Option(help="a=URL,b=URL, a YAML file, or emulated:PROFILE[/ARM+ARM].")],
    context: Annotated[
        str | None, typer.Option("--contexts", "--context", help="Lengths to try: 1k..128k doubles, 1k,4k,10k lists.")
    ] = None,
    concurrency: Annotated[bool, typer.Option("--concurrency", help="Search how many sessions run side by side before trouble.")] = False,
    db: Annotated[Path, typer.Option(help="DuckDB file; it is made if it does not exist.")] = Path("agentload.duckdb"),
    model: Annotated[str | None, typer.Option(help="Model to ask for; the only one served when omitted.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    pairs: Annotated[int, typer.Option(help="--contexts: how often each arm is asked each length.")] = 6,
    output: Annotated[int, typer.Option(help="--contexts: tokens of each answer.")] = 128,
    trace: Annotated[str, typer.Option(help="--concurrency: whose sessions run; several, separated by commas, as one mix.")] = "chat",
    start: Annotated[int, typer.Option(help="--concurrency: sessions to begin with.")] = 4,
    seconds: Annotated[float, typer.Option(help="--concurrency: length of each trial.")] = 60.0,
    slo: Annotated[str | None, typer.Option(help="--concurrency: limits in ms: ttft=2000,tpot=50,turn=30000.")] = None,
    share: Annotated[float, typer.Option(help="--concurrency: share of the turns that must hold.")] = 0.95,
    wait_cap: opt.WaitCaps = None,
    seed: opt.Seed = 0,
    into: Annotated[str | None, typer.Option(help="Keep what was measured beside this run, for its report.")] = None,
    launch: Launch = False,
    restarts: Restarts = None,
    logs: Logs = LOGS,
    start_timeout: StartTimeout = START_S,
    force: Annotated[
        bool, typer.Option("--force", help="Measure servers that are not what the arms file expects; a caveat is kept.")
    ] = False,
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Emulated endpoints scatter as real servers do.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="--contexts: print the plan and what it costs; send nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    if concurrency == (context is not None):
        raise UsageError("sweep takes either --contexts or --concurrency", hint="agentload sweep --contexts 1k..64k --endpoints ENDPOINTS")
    if start < 1 or seconds <= 0:
        raise UsageError(f"--start must be at least 1 and --seconds positive, got {start} and {seconds:g}")
    wanted = read(endpoints, model=model, key_env=api_key_env)
    starting = launching(launch, wanted, logs=logs, start_s=start_timeout)
    into = None if into is None else opt.existing_run(db, into)
    with reached(wanted, noise=noise, seed=seed, is_dry=dry_run) as arms:
        if context is None:
            crowd = Crowd(
                trace=load_traces(trace.split(","))[0],
                limits=opt.limits(slo, share) if slo else Limits(share=share),
                waits=opt.waits([], wait_cap or []),
                seconds=seconds,
                seed=seed,
                is_forced=force,
                command=typed_command(),
            )
            found = searched(crowd, arms, start, starting)
            print_json(found) if json else print(described(found))
            if into is not None:
                classes = {session.workload for session in crowd.trace.sessions}
                keep_searches(found, db, run=into, at_ns=time.time_ns(), seconds=seconds, slo=slo or "", classes=classes)
            require(found)
            return
        contexts = lengths(context, option="--contexts", least=SMALLEST)
        if not dry_run:
            contexts = _fitting(contexts, _longest(arms, are_up=starting is None), output)
        whole = pairs if into is None else pairs + taken(db, into)
        made = plan(
            sweep(contexts, pairs=whole, output=output, seed=seed),
            [arm.name for arm in arms],
            run=into or new_run_id(),
            seed=seed,
            pairs=whole,
            load=Load(arrivals=ClosedLoop(sessions=1)),
        )
        made = made if into is None else beside(made, db)
        made = made if starting is None else with_starts(made, restarts)
        expected = cost(made)
        if dry_run:
            print_json(expected) if json else print(describe(made, expected))
            return
        replay = Replay(
            plan=made,
            endpoints=arms,
            database=db,
            trace_hash=f"{CONTEXT_SWEEP} {context} x {output}",
            command=typed_command(),
            is_forced=force,
            launching=starting,
            settings={"contexts": contexts, "pairs": pairs, "output": output},
        )
        ended = played(replay, expected)
    warned(ended)
    stopped = InterruptError(f"run {ended.run_id} was stopped; the pairs that were finished are stored") if ended.was_stopped else None
    concluded(ended.run_id, db, load_error=ended.load_error, stopped=stopped)
    summary = summarise(db, ended.run_id)
    print_json(summary) if json else print(f"{summary.text()}\n\nNext: agentload report {db} --run {ended.run_id}")


def _longest(arms: tuple[Endpoint, ...], *, are_up: bool) -> int | None:
    """Return what the shortest model length is, by the servers' word or, where they do not run yet, by the arms file's."""
    if are_up:
        said = [identity.max_model_len for identity in asyncio.run(identify_all(arms))]
    else:
        said = [length for arm in arms if isinstance(length := arm.expect.get("max_model_len"), int)]
    return min((length for length in said if length is not None), default=None)


def _fitting(contexts: tuple[int, ...], longest: int | None, output: int) -> tuple[int, ...]:
    """Return the lengths that every server takes."""
    if longest is None:
        return contexts
    fitting = tuple(context for context in contexts if context + output <= longest)
    if not fitting:
        raise PlanError(f"no length of {contexts[0]:,} or more fits a model length of {longest:,}", hint="--contexts with shorter ones")
    if len(fitting) < len(contexts):
        last = longest - output
        # The end of the window is where a slope is told best.
        fitting = (*fitting, last) if last > fitting[-1] * 1.25 else fitting
        print(f"a model length of {longest:,} takes prompts of up to {last:,} tokens", file=sys.stderr)
    return fitting
