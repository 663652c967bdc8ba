"""What the verbs of `watch` have in common."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.watch.history import Execution

DEFAULT: Final = Path("watch.yaml")

JobsFile = Annotated[Path, typer.Option("--file", "-f", help="Jobs file; its database lies beside it.")]
Name = Annotated[str, typer.Argument(help="Name of the job.")]


def when(at_ns: int | None) -> str:
    """Write an instant of the wall clock."""
    return "–" if at_ns is None else f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%d %H:%M}"


def seconds(each: Execution) -> str:
    """Write how long an execution took."""
    return "–" if each.ended_ns is None else f"{(each.ended_ns - each.started_ns) / 1e9:,.0f} s"
