"""The demo: three arms, two small traces, one report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._audience import TERMINAL
from agentload.errors import InterruptError
from agentload.report.advise import advise, keep
from agentload.report.policy import Setting
from agentload.report.write import write
from agentload.run.foreground import played
from agentload.run.play import Playing
from agentload.run.prepared import Place, prepared
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, TraceRef

TRACES: Final = ("demo-rag", "demo-chat")
PAIRS: Final = 4
# Twice as fast as recorded, and nobody waits long for a user who does not exist.
LOAD: Final = Load(speed=2.0, wait_cap_s={"user": 0.3, "tool": 0.1})


def demo(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report and its database.")] = Path("reports/demo"),
    profile: Annotated[str, typer.Option(help="Another shipped profile to play on.")] = "gpt-oss-20b-h100",
    seed: Annotated[int, typer.Option(help="Seed of the servers' noise and of the order of the arms.")] = 0,
) -> None:
    """Compare three KV-cache configurations on emulated servers and write the decision report, in under a minute.

    Nothing to install and no GPU: the servers follow a published deployment (gpt-oss-20b on an H100: BF16, FP8, FP8 that skips
    sliding-window layers). Two small traces are replayed live, every call is stored in DuckDB, and the advisor decides.
    """
    database = out / "demo.duckdb"
    out.mkdir(parents=True, exist_ok=True)
    study = Replay(
        traces=tuple(TraceRef(path=name) for name in TRACES),
        servers=Live(endpoints=f"emulated:{profile}"),
        pairs=PAIRS,
        load=LOAD,
        seed=seed,
    )
    print(f"starting emulated servers of {profile} …", flush=True)
    with prepared(study, Place(database=database)) as made:
        assert isinstance(made.playing, Playing), made.playing
        for endpoint in made.playing.endpoints:
            print(f"  {endpoint.name:<14} {endpoint.url}")
        total = sum(made.cost.calls_by_arm.values())
        print(f"replaying {' and '.join(TRACES)}: {total} calls, {made.cost.prompt_tokens:,} prompt tokens …", flush=True)
        ended = played(made.playing, TERMINAL)
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
