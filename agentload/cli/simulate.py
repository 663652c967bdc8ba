"""Play a trace on a profile in virtual time: a day of agents in seconds, with the rows that a live run stores.

No server is started and nothing sleeps. The same trace, profile, options and seed give the same bytes, so a simulation asked for twice
is one run. Reports label it as simulated.

For example:

    agentload simulate rag --profile llama-3.1-8b-h100 --db agentload.duckdb

    agentload simulate traces/chat.jsonl --profile gpt-oss-20b-h100 --arms bf16,fp8-skip-sw --sessions 16

    agentload simulate code --profile llama-3.1-8b-h100 --find max-concurrency --slo ttft=3000,tpot=50 --wait-cap user=60

    agentload simulate code --profile llama-3.1-8b-h100 --arms bf16,fp8 --capacity 24 --pairs 2 --wait-cap user=60

    agentload simulate chat --profile llama-3.1-8b-h100 --rate 0.5 --ramp 120 --burst 5x10/60

    agentload simulate rag --profile llama-3.1-8b-h100 --arms bf16,fp8 --design parallel --swap --machines m1=1,m2=1.08
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload import __version__
from agentload.cli import _load as opt
from agentload.cli._found import describe
from agentload.cli._output import print_json, transient
from agentload.errors import UsageError
from agentload.kvmath.pool import pool_of
from agentload.layout.long_run import long_run
from agentload.layout.plan import plan
from agentload.model.plan import Load
from agentload.run.capacity import keep_searches
from agentload.run.find import What
from agentload.run.find import find as search
from agentload.run.record import typed_command
from agentload.run.servers import arms_of
from agentload.run.simulate import Simulation, quiet, run_id, store
from agentload.run.summary import summarise
from agentload.run.traces import load_traces

NEEDS: Final = {**opt.NEEDS, "share": ("find",), "minutes": ("find",), "into": ("find",), "slo": ("find", "capacity")}


@opt.with_load
def run(
    traces: Annotated[list[str], typer.Argument(help="Trace files, or names of shipped traces; several are played as one mix.")],
    *,
    profile: Annotated[str, typer.Option(help="Profile file, or the name of a shipped profile (`agentload profile list`).")],
    arms: Annotated[str | None, typer.Option(help="Arms of the profile, such as bf16,fp8; all that have a latency when omitted.")] = None,
    db: Annotated[Path, typer.Option(help="DuckDB file; it is made if it does not exist.")] = Path("agentload.duckdb"),
    pairs: opt.Pairs = 6,
    design: opt.Design = "interleaved",
    swap: opt.Swap = False,
    machines: Annotated[
        str | None, typer.Option(help="Machines that the arms begin on, and how many times as long a step takes there: m1=1,m2=1.08.")
    ] = None,
    cache: opt.Cache = "cold",
    load: Load,
    capacity: opt.Capacity = None,
    seed: opt.Seed = 0,
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Scatter as real servers do.")] = True,
    find: Annotated[What | None, typer.Option(help="Instead: find the max-concurrency or max-rate that holds --slo, for each arm.")] = None,
    slo: opt.Slo = opt.SLO,
    share: Annotated[float, typer.Option(help="Share of the turns that must hold them.")] = 0.95,
    minutes: Annotated[float, typer.Option(help="Virtual minutes that each load is tried for.")] = 15.0,
    into: Annotated[str | None, typer.Option(help="Store what --find max-concurrency tried beside this run, for its report.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    chosen = arms_of(profile, [name.strip() for name in arms.split(",")] if arms else [])
    trace, trace_hash = load_traces(traces)
    if find is not None:
        limits = opt.limits(slo, share)
        beside = opt.existing_run(db, into) if into is not None else None
        found = [
            search(find, trace, arm, limits=limits, load=load, seconds=60 * minutes, seed=seed)
            for arm in (chosen if noise else quiet(chosen).values())
        ]
        print_json(found) if json else print(describe(found, find, slo=slo, share=share))
        if beside is not None and find == "max-concurrency":
            classes = {session.workload for session in trace.sessions}
            keep_searches(found, db, run=beside, at_ns=None, seconds=60 * minutes, slo=slo, classes=classes)
        return
    slowness = _machines(machines, arms=len(chosen), is_named=swap or design == "parallel")
    name = run_id(__version__, trace_hash, chosen, load, pairs, design, cache, seed, noise, swap, slowness, capacity, slo)
    if capacity is not None:
        long = long_run(trace, load, agents=capacity, seed=seed, pools={arm.name: float(pool_of(arm).tokens) for arm in chosen})
        trace, load, fills = long.trace, long.load, long.fills
    made = plan(
        trace,
        [arm.name for arm in chosen],
        run=name,
        seed=seed,
        pairs=pairs,
        design=design,
        cache=cache,
        load=load,
        machines=tuple(slowness),
        swap=swap,
        whole=capacity is not None,
    )
    settings: dict[str, object] = {"traces": traces, "profile": profile, "pairs": pairs, "noise": noise}
    if capacity is not None:
        settings["capacity"] = {"agents": capacity, "slo": asdict(opt.limits(slo, share)), "fill_minutes": fills.minutes}
        if (warning := fills.warning()) is not None:
            print(f"warning: {warning}", file=sys.stderr)
    simulation = Simulation(
        plan=made,
        arms={arm.name: arm for arm in chosen} if noise else quiet(chosen),
        trace_hash=trace_hash,
        command=typed_command(),
        settings=settings,
        slowness=slowness,
    )
    started = time.monotonic()
    store(simulation, db, told=lambda rows: transient(f"{rows:,} rows"))
    transient("")
    summary = summarise(db, name)
    if json:
        print_json(summary)
        return
    print(summary.text())
    print(f"simulated in {time.monotonic() - started:.1f} s\n\nNext: agentload report {db} --run {name}")


def _machines(text: str | None, *, arms: int, is_named: bool) -> dict[str, float]:
    """Return the machines of a simulation: those that were named, or equal ones for arms that run beside each other."""
    found = opt.machines(text) if text is not None else {f"m{number + 1}": 1.0 for number in range(arms)} if is_named else {}
    if found and len(found) != arms:
        raise UsageError(f"{arms} arms need as many machines, got {len(found)}", hint="--arms bf16,fp8 --machines m1=1,m2=1.08")
    return found
