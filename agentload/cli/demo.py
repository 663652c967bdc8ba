"""The demo: one comparison over real sockets, then a tour of decisions in virtual time, and one page over all of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._tour import LIVE, STOPS, visit
from agentload.report.matrix import page, write
from agentload.report.record import Measured

LOADS: Final = (3, 1)
"""Sessions at once: a machine that is too busy for the first number may keep up with the next."""


def demo(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the reports and their databases.")] = Path("reports/demo"),
    profile: Annotated[
        str, typer.Option(help="What the live comparison plays on: a shipped profile, optionally with /ARM+ARM.")
    ] = "gemma-4-e2b-h100/bf16+fp8",
    seed: Annotated[int, typer.Option(help="Seed of the live servers' noise and of the order of the arms.")] = 0,
) -> None:
    """Decide seven times in a minute: once over real sockets, six times in virtual time. Nothing to install and no GPU.

    The servers follow published deployments. Each decision is made by commands that are printed as they are carried out, and that you can
    paste; each has a report, and one page has all of them. Between them they use, avoid, calibrate, upgrade and test further.
    """
    out.mkdir(parents=True, exist_ok=True)
    for stop in (LIVE, *STOPS):  # of an earlier demo
        shutil.rmtree(out / stop.name, ignore_errors=True)
    found = [_live(out, profile=profile, seed=seed), *(visit(stop, out / stop.name) for stop in STOPS)]
    made = page("Demo", found, missing=())
    paths = write(made, out, name="demo")
    print()
    for listing in made.lists:
        print(f"{listing.heading}: {' · '.join(listing.items) or 'none'}")
    print(f"No difference for: {' · '.join(made.no_difference) or 'none'}")
    print(f"\nOpen {next(path for path in paths if path.suffix == '.html')} in a browser. On your own servers: agentload replay --help")


def _live(out: Path, *, profile: str, seed: int) -> Measured:
    """Return the first live comparison whose requests left in time; the last one, if this machine never keeps up."""
    for sessions in LOADS:
        shutil.rmtree(out / LIVE.name, ignore_errors=True)
        found = visit(LIVE, out / LIVE.name, profile=profile, sessions=sessions, seed=seed)
        if all(gate.status != "fail" for gate in found.document.decision.gates if gate.name == "client"):
            break
        print("  This machine is too busy to send requests in time" + (": again, with fewer at once" if sessions != LOADS[-1] else "."))
    return found
