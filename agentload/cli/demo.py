"""The demo: one comparison over real sockets, then a tour
of decisions in virtual time, and one page over all of them.
"""

import shutil
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._tour import LIVE, STOPS, live, visit
from agentload.report.matrix import MatrixPage, write

NEXT: Final = (
    "\nNext, decide on two servers of your own: 45 minutes at most. "
    "With --dry-run it sends nothing and says what that settles.\n"
    "  $ agentload decide rag chat --endpoints "
    "bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1 --slo ttft=2s,tpot=50ms"
)


def demo(
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the reports and their databases.")
    ] = Path("reports/demo"),
    profile: Annotated[
        str, "What the live comparison plays on: a shipped profile, optionally with /ARM+ARM."
    ] = "gemma-4-e2b-h100/bf16+fp8",
    seed: Annotated[int, "Seed of the live servers' noise and of the order of the arms."] = 0,
) -> None:
    """Decide seven times in a minute: once over real sockets,
    six times in virtual time. Nothing to install and no GPU.

    The servers follow published deployments. Each decision is made by commands that are
    printed as they are carried out, and that you can paste; each has a report, and one page
    has all of them. Between them they use, avoid, calibrate, upgrade and test further.
    """
    out.mkdir(parents=True, exist_ok=True)
    for stop in (LIVE, *STOPS):  # of an earlier demo
        shutil.rmtree(out / stop.name, ignore_errors=True)
    first = live(out, profile=profile, seed=seed)
    found = (first, *(visit(stop, out / stop.name) for stop in STOPS))
    made = MatrixPage(title="Demo", models=found, missing=())
    paths = write(made, out, name="demo")
    print()
    for listing in made.lists:
        print(f"{listing.heading}: {' · '.join(listing.items) or 'none'}")
    print(f"No difference for: {' · '.join(made.no_difference) or 'none'}")
    print(f"\nOpen {next(path for path in paths if path.suffix == '.html')} in a browser.\n{NEXT}")
