"""Compare three KV-cache configurations on emulated servers and write the decision report, in under a minute.

Nothing to install and no GPU: the servers follow a published deployment (gpt-oss-20b on an H100: BF16, FP8, FP8 that skips sliding-window
layers). Two small traces are replayed live, every call is stored in DuckDB, and the advisor decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentload.cli._playing import played
from agentload.endpoints.read import Emulated
from agentload.errors import InterruptError
from agentload.layout.cost import cost
from agentload.layout.plan import plan
from agentload.model.plan import Load, Recorded, WaitScale
from agentload.report.advise import advise, keep
from agentload.report.policy import Setting
from agentload.report.write import write
from agentload.run.play import Replay
from agentload.run.record import new_run_id, typed_command
from agentload.run.servers import emulated
from agentload.run.traces import load_traces

TRACES = ("demo-rag", "demo-chat")
PAIRS = 4
# Twice as fast as recorded, and nobody waits long for a user who does not exist.
LOAD = Load(arrivals=Recorded(speed=2.0), waits={"user": WaitScale(cap_s=0.3), "tool": WaitScale(cap_s=0.1)})


def run(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report and its database.")] = Path("reports/demo"),
    profile: Annotated[str, typer.Option(help="Another shipped profile to play on.")] = "gpt-oss-20b-h100",
    seed: Annotated[int, typer.Option(help="Seed of the servers' noise and of the order of the arms.")] = 0,
) -> None:
    trace, trace_hash = load_traces(TRACES)
    database = out / "demo.duckdb"
    out.mkdir(parents=True, exist_ok=True)
    print(f"starting emulated servers of {profile} …", flush=True)
    with emulated(Emulated(profile=profile, arms=()), noise=True, seed=seed) as served:
        for endpoint in served:
            print(f"  {endpoint.name:<14} {endpoint.url}")
        made = plan(trace, [endpoint.name for endpoint in served], run=new_run_id(), seed=seed, pairs=PAIRS, load=LOAD)
        expected = cost(made)
        total = sum(expected.calls_by_arm.values())
        print(f"replaying {' and '.join(TRACES)}: {total} calls, {expected.prompt_tokens:,} prompt tokens …", flush=True)
        replay = Replay(
            plan=made,
            endpoints=served,
            database=database,
            trace_hash=trace_hash,
            command=typed_command(),
            settings={"traces": TRACES, "pairs": PAIRS, "noise": True},
        )
        ended = played(replay, expected)
    if ended.was_stopped:
        raise InterruptError("the demo was stopped; what was measured is stored", hint=f"agentload report {database}")
    setting = Setting()
    document = advise(database, ended.run_id, setting=setting)
    keep(document, database, setting=setting)
    paths = write(document, out)
    print(f"\n{document.headline}\n")
    for path in paths:
        if path.parent == out:
            print(f"  {path}")
    print(f"\nOpen {out / 'decision.html'} in a browser. On your own servers: agentload replay --help")
