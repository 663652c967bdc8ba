"""Play a trace on a profile in virtual time: a day of agents in seconds, with the rows that a live run stores.

No server is started and nothing sleeps. The same trace, profile, options and seed give the same bytes, so a simulation asked for twice
is one run. Reports label it as simulated.

For example:

    agentload simulate rag --profile llama-3.1-8b-h100 --db agentload.duckdb

    agentload simulate traces/chat.jsonl --profile gpt-oss-20b-h100 --arms bf16,fp8-skip-sw --sessions 16

    agentload simulate code --profile llama-3.1-8b-h100 --find max-concurrency --slo ttft=3000,tpot=50 --wait-cap user=60
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from agentload import __version__
from agentload.cli import _load as opt
from agentload.cli._found import describe
from agentload.cli._output import print_json
from agentload.experiment.arms import arms_of
from agentload.experiment.find import find as search
from agentload.experiment.find import rows
from agentload.experiment.keep import keep
from agentload.experiment.load_traces import load_traces
from agentload.experiment.plan import plan
from agentload.experiment.record import typed_command
from agentload.experiment.simulate import Simulation, quiet, run_id, store
from agentload.experiment.summary import summarise


def run(
    traces: Annotated[list[str], typer.Argument(help="Trace files, or names of shipped traces; several are played as one mix.")],
    *,
    profile: Annotated[str, typer.Option(help="Profile file, or the name of a shipped profile (`agentload profile list`).")],
    arms: Annotated[str | None, typer.Option(help="Arms of the profile, such as bf16,fp8; all that have a latency when omitted.")] = None,
    db: Annotated[Path, typer.Option(help="DuckDB file; it is made if it does not exist.")] = Path("agentload.duckdb"),
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
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Scatter as real servers do.")] = True,
    find: Annotated[str | None, typer.Option(help="Instead: find the max-concurrency or max-rate that holds --slo, for each arm.")] = None,
    slo: Annotated[str, typer.Option(help="Limits in ms that a turn must hold: ttft=2000,tpot=50,turn=30000.")] = "ttft=2000,tpot=100",
    share: Annotated[float, typer.Option(help="Share of the turns that must hold them.")] = 0.95,
    minutes: Annotated[float, typer.Option(help="Virtual minutes that each load is tried for.")] = 15.0,
    into: Annotated[str | None, typer.Option(help="Store what --find max-concurrency tried beside this run, for its report.")] = None,
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
    chosen = arms_of(profile, [name.strip() for name in arms.split(",")] if arms else [])
    trace, trace_hash = load_traces(traces)
    if find is not None:
        what, limits = opt.what(find), opt.limits(slo, share)
        beside = opt.existing_run(db, into) if into is not None else None
        found = [
            search(what, trace, arm, limits=limits, load=load, seconds=60 * minutes, seed=seed)
            for arm in (chosen if noise else quiet(chosen).values())
        ]
        if beside is not None and what == "max-concurrency":
            steps = (row for each in found for row in rows(each, run_id=beside, seconds=60 * minutes, slo=slo))
            keep(steps, db, run_id=beside, name="capacity")
        print_json(found) if json else print(describe(found, what, slo=slo, share=share))
        return
    name = run_id(__version__, trace_hash, chosen, load, pairs, design, cache, seed, noise)
    made = plan(
        trace,
        [arm.name for arm in chosen],
        run=name,
        seed=seed,
        pairs=pairs,
        design=opt.design(design),
        cache=opt.cache(cache),
        load=load,
    )
    simulation = Simulation(
        plan=made,
        arms={arm.name: arm for arm in chosen} if noise else quiet(chosen),
        trace_hash=trace_hash,
        command=typed_command(),
        settings={"traces": traces, "profile": profile, "pairs": pairs, "noise": noise},
    )
    started = time.monotonic()
    store(simulation, db, told=_counter())
    summary = summarise(db, name)
    if json:
        print_json(summary)
        return
    print(summary.text())
    print(f"simulated in {time.monotonic() - started:.1f} s\n\nNext: agentload report {db} --run {name}")


def _counter() -> opt.Told:
    def told(rows: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{rows:,} rows", end="", file=sys.stderr, flush=True)

    return told
