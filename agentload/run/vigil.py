"""Notice that an endpoint is dead, and see it come back."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify
from agentload.errors import EndpointError
from agentload.model.commands import Send, Status
from agentload.model.rows import CallRow

DEAD_AFTER: Final = 5  # failures in a row without any answer between them; one alone may be a full accept queue
SILENT: Final[frozenset[Status]] = frozenset({"refused", "reset", "connect_timeout"})
LOOK_S: Final = 2.0


class Vigil:
    """Listen to a replay; tell once when an arm has stopped answering."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        self._lost = lost
        self._failures: Counter[str] = Counter()
        self.dead: set[str] = set()

    def sent(self, send: Send) -> None:
        """Take no notice."""

    def ended(self, send: Send, ended: CallRow) -> None:
        """Count failures in a row."""
        arm = send.arm
        if ended.status not in SILENT or ended.http_status is not None:
            self._failures[arm] = 0
            return
        self._failures[arm] += 1
        if self._failures[arm] >= DEAD_AFTER and arm not in self.dead:
            self.dead.add(arm)
            self._lost(arm)

    def revived(self, arm: str) -> None:
        """Note that the arm answers again."""
        self.dead.discard(arm)
        self._failures[arm] = 0


async def awaited(endpoint: Endpoint, *, patience_s: float, goes_on: str, is_stopping: Callable[[], bool]) -> Identity | None:
    """Ask until the endpoint answers, or nobody wants it any more. Raises EndpointError when it stays silent."""
    until_s = time.monotonic() + patience_s
    while not is_stopping():
        try:
            return await identify(endpoint)
        except EndpointError as error:
            if time.monotonic() + LOOK_S > until_s:
                raise EndpointError(
                    f"{endpoint.name} stayed dead for {patience_s:.0f} s: {error.message}",
                    hint=f"start it again, then: {goes_on}",
                ) from error
        await asyncio.sleep(LOOK_S)
    return None
