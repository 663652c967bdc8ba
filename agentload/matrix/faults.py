"""Try a model's servers one by one: which do not start or are wrong, and what they logged."""

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from agentload.endpoints.agreement import agreement
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, served_model
from agentload.endpoints.launch import EndedError
from agentload.endpoints.read import read
from agentload.errors import EndpointError, LaunchError
from agentload.matrix.past import ServerFault
from agentload.matrix.steps import ModelPart
from agentload.run.relay import Launching, Relay

_CAUSE: Final = re.compile(r"(?:\w*(?:Error|Exception)|error): ?\S")
_ECHO: Final = re.compile(
    r"Engine core initialization failed|See root cause|EngineDeadError"
)  # lines in which vLLM's API server repeats an error of its engine
_PREFIX: Final = re.compile(
    r"^(?:\([\w ]+pid=\d+\) *)?(?:(?:ERROR|WARNING|INFO) [\d-]+ [\d:]+ \[[^\]]+\] *)?"
)
LONGEST: Final = 300


def faults(
    part: ModelPart, *, told: Callable[[str], None], is_stopping: Callable[[], bool]
) -> Iterator[tuple[str, ServerFault]]:
    """Yield a server that keeps a replay from starting, if any; the last started is tried first."""
    if part.is_emulated:
        return
    places = part.places
    arms = read(part.endpoints(part.arms))
    assert isinstance(arms, tuple), arms
    last = _last_started(places.logs(part.name, "replay"))
    for endpoint in sorted(arms, key=lambda each: each.name != last):
        if is_stopping():
            return
        key = f"{part.name}/{endpoint.name}"
        told(f"{key}: does its server {'start' if part.is_launched else 'answer'}?")
        wrong = look_at(
            endpoint,
            is_launched=part.is_launched,
            logs=places.logs(part.name, "faults"),
            start_s=part.matrix.server.start_timeout_s,
            is_stopping=is_stopping,
        )
        if wrong is not None:
            code = "" if wrong.code is None else f" (code {wrong.code})"
            told(f"{key}: left out: {wrong.said}{code}")
            yield endpoint.name, wrong
            return  # the next replay finds the others


def look_at(
    endpoint: Endpoint,
    *,
    is_launched: bool,
    logs: Path,
    start_s: float,
    is_stopping: Callable[[], bool] = lambda: False,
) -> ServerFault | None:
    """Identify a server as a replay does; return its fault, or None.

    A launched server is started and stopped for this.
    """
    if is_launched:
        met = _started(endpoint, Launching(logs=logs, start_s=start_s), is_stopping)
    else:
        met = _asked(endpoint)
    try:
        asyncio.run(met)
    except EndedError as error:
        return ServerFault(said=last_words(_log(endpoint, logs)), code=error.code)
    except (EndpointError, LaunchError) as error:
        if is_stopping():
            return None
        said = error.message.partition("\n")[0]
        # The server came up and crashed on its first question.
        is_gone = is_launched and isinstance(error, EndpointError) and error.__cause__ is not None
        if is_gone:
            said = f"{said}: {last_words(_log(endpoint, logs))}"
        return ServerFault(said=said)
    return None


async def _started(
    endpoint: Endpoint, launching: Launching, is_stopping: Callable[[], bool]
) -> None:
    async with Relay({endpoint.name: endpoint}, launching, is_stopping=is_stopping) as relay:
        served_model(endpoint, await relay.meet(endpoint.name))


async def _asked(endpoint: Endpoint) -> None:
    identity = await identify(endpoint)
    served_model(endpoint, identity)
    agreement([endpoint], {endpoint.name: identity}).require()


def _log(endpoint: Endpoint, logs: Path) -> str:
    newest = max(logs.glob(f"start-*/{endpoint.name}.log"), key=lambda log: log.stat().st_mtime_ns)
    return endpoint.masked(newest.read_text(encoding="utf-8", errors="replace"))


def last_words(log: str) -> str:
    """Return the log line that says why a server ended.

    That is the last error with a cause, else the last line.
    """
    lines = [_PREFIX.sub("", line).strip() for line in log.splitlines()]
    filled = list(filter(None, lines))
    causes = [line for line in filled if _CAUSE.search(line) and not _ECHO.search(line)]
    *_, last = causes or filled or ["it logged nothing"]
    return last[:LONGEST]


def _last_started(logs: Path) -> str | None:
    """Return the server with the newest log."""
    found = list(logs.glob("start-*/*.log"))
    if not found:
        return None
    return max(found, key=lambda log: log.stat().st_mtime_ns).stem
