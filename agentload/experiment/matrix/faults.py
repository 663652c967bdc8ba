"""Try the servers of a model one by one: which of them do not start, and what do they say?"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agentload.endpoints.agreement import agreement
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, served_model
from agentload.endpoints.launch import EndedError, start
from agentload.errors import EndpointError, LaunchError
from agentload.experiment.matrix.state import Fault

_CAUSE: Final = re.compile(r"(?:\w*(?:Error|Exception)|error): ?\S")
_ECHO: Final = re.compile(r"Engine core initialization failed|See root cause")  # vLLM's API server, of its engine's error
_PREFIX: Final = re.compile(r"^(?:\([\w ]+pid=\d+\) *)?(?:(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]+\] *)?")
LONGEST: Final = 300


def look_at(
    endpoint: Endpoint, *, is_launched: bool, logs: Path, start_s: float, is_stopping: Callable[[], bool] = lambda: False
) -> Fault | None:
    """Ask a server who it is, started and ended for it where it does not run; None where all is well."""
    if not is_launched or endpoint.launch is None:
        return _asked(endpoint, launch="")
    launch = shlex.join(endpoint.launch.command)
    try:
        running = start(endpoint, logs=logs, start_s=start_s, is_stopping=is_stopping)
    except EndedError as error:
        log = logs / f"{endpoint.name}.log"
        return Fault(launch=launch, said=last_words(log.read_text(encoding="utf-8", errors="replace")), code=error.code)
    except LaunchError as error:
        return None if is_stopping() else Fault(launch=launch, said=error.message.partition("\n")[0])
    try:
        return _asked(endpoint, launch=launch)
    finally:
        running.stop()


def last_words(log: str) -> str:
    """Return the line of a log that says why the server ended: the last error that tells a cause, else its last line."""
    lines = [_PREFIX.sub("", line).strip() for line in log.splitlines()]
    told = [line for line in lines if line]
    causes = [line for line in told if _CAUSE.search(line) and not _ECHO.search(line)]
    return (causes or told or ["it said nothing"])[-1][:LONGEST]


def last_started(logs: Path) -> str | None:
    """Name the server of a replay whose log is the newest."""
    found = list(logs.glob("start-*/*.log"))
    return max(found, key=lambda log: log.stat().st_mtime_ns).stem if found else None


def _asked(endpoint: Endpoint, *, launch: str) -> Fault | None:
    try:
        identity = asyncio.run(identify(endpoint))
        served_model(endpoint, identity)
        agreement([endpoint], {endpoint.name: identity}).require()
    except EndpointError as error:
        return Fault(launch=launch, said=error.message)
    return None
