"""Search how many sessions each endpoint carries, and say what was found."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from agentload.cli._table import table
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.kept import kept
from agentload.errors import EndpointError
from agentload.run.capacity import Found
from agentload.run.crowd import Crowd
from agentload.run.relay import Launching


def searched(crowd: Crowd, arms: Sequence[Endpoint], start: int, starting: Launching | None) -> list[Found]:
    """Search arm by arm; where we start the servers, one runs at a time, and one that died is started again."""

    def told(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if starting is None:
        return [crowd.search(arm, start=start, told=told) for arm in arms]
    found = []
    for arm in arms:
        with kept(arm, logs=starting.logs / arm.name, start_s=starting.start_s) as server:
            found.append(crowd.search(arm, start=start, told=told, server=server))
    return found


def described(found: Sequence[Found]) -> str:
    """Return a table with a line an arm: what holds, what does not, and which trouble that was."""
    cells = [(each.arm, _load(each.holds), _load(each.breaks), _trouble(each), str(len(each.trials))) for each in found]
    return "\n".join(table(("arm", "holds", "breaks at", "trouble", "trials"), cells))


def require(found: Sequence[Found]) -> None:
    """Raise `EndpointError` for an arm of which nothing is known, because its first trial says nothing."""
    for each in found:
        if each.void is not None and each.holds is None and each.breaks is None:
            raise EndpointError(f"{each.arm}: nothing was found: {each.void.void}", hint="mend that, then the same command again")


def _load(sessions: float | None) -> str:
    return "–" if sessions is None else f"{sessions:.0f}"


def _trouble(found: Found) -> str:
    trial = found.broken
    if trial is None or trial.trouble is None:
        return "–"
    return trial.trouble if trial.died is None else f"{trial.trouble} ({trial.died})"
