"""Options of verbs that can start servers themselves, one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._needs import Needs
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import Emulated
from agentload.errors import UsageError
from agentload.run.relay import Launching

Launch = Annotated[
    bool,
    typer.Option(
        "--launch", help="One server at a time: start each arm for its blocks with the arms file's command, end it before the next."
    ),
]
Restarts = Annotated[int | None, typer.Option(help="--launch: how often each arm is started; for every pair anew when omitted.")]
Logs = Annotated[Path, typer.Option(help="--launch: folder for the servers' logs.")]
StartTimeout = Annotated[float, typer.Option(help="--launch: seconds until a server must be healthy.")]

NEEDS: Final[Needs] = dict.fromkeys(("restarts", "logs", "start_timeout"), ("launch",))
LOGS = Path("logs")
START_S = 1800.0


def launching(is_wanted: bool, endpoints: tuple[Endpoint, ...] | Emulated, *, logs: Path, start_s: float) -> Launching | None:  # noqa: FBT001  # an option as it was given
    """Say how servers are started; None where they run already. Raises UsageError where there is nothing to start them with."""
    if not is_wanted:
        return None
    launchable(endpoints, option="--launch")
    return Launching(logs=logs, start_s=start_s)


def launchable(endpoints: tuple[Endpoint, ...] | Emulated, *, option: str) -> tuple[Endpoint, ...]:
    """Return endpoints that can be started. Raises UsageError naming one that cannot."""
    if isinstance(endpoints, Emulated):
        raise UsageError(f"{option} starts the servers of an arms file; emulated ones are started anyway", hint=f"leave {option} out")
    if missing := next((endpoint.name for endpoint in endpoints if endpoint.launch is None), None):
        raise UsageError(f"{option}: {missing} has no launch command", hint="launch: vllm serve MODEL --port 8000, in an arms file")
    return endpoints
