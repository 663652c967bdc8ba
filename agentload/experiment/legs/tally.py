"""Hold a server's count of answered requests against ours: more are somebody else's, fewer were answered by somebody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agentload.endpoints.endpoint import Endpoint
from agentload.model.commands import Send, Status
from agentload.model.rows import CallRow

COUNTED: Final[frozenset[Status]] = frozenset({"ok", "long", "garbage"})
"""Ends that a server counts as a success of its own."""
UNCOUNTED: Final[frozenset[Status]] = frozenset({"refused", "connect_timeout", "busy", "http_error", "not_sent"})
"""Ends that it never counts as one. All others it may have: it can be done with a call that we gave up."""
DONE: Final = "requests_done"


@dataclass(frozen=True, slots=True)
class _Reading:
    counters: Mapping[str, float]
    ours: int
    perhaps: int


class Tally:
    """Count our calls by the pages that count them too: an arm and its control share a server, arms behind one gateway need not."""

    def __init__(self) -> None:
        self._ours: Counter[tuple[str, ...]] = Counter()
        self._perhaps: Counter[tuple[str, ...]] = Counter()
        self._last: dict[str, _Reading] = {}

    def ended(self, endpoint: Endpoint, send: Send, ended: CallRow) -> None:
        """Note a call of ours that the server will have counted."""
        if ended.status in UNCOUNTED:
            return
        # Behind a gateway an alias may be a model of another server.
        is_certain = ended.status in COUNTED and send.call.model not in endpoint.aliases
        (self._ours if is_certain else self._perhaps)[endpoint.metrics_urls] += 1

    def read(self, endpoint: Endpoint, counters: Mapping[str, float]) -> None:
        """Count from these figures on."""
        urls = endpoint.metrics_urls
        self._last[endpoint.name] = _Reading(counters, self._ours[urls], self._perhaps[urls])

    def perhaps(self, endpoint: Endpoint) -> int:
        """Count the calls since the last reading of which the server may know more than we do."""
        return self._perhaps[endpoint.metrics_urls] - self._last[endpoint.name].perhaps

    def beyond(self, endpoint: Endpoint, counters: Mapping[str, float]) -> float:
        """Return what a server counted beyond the calls that it must have; below zero it is behind, 0 where it does not count."""
        last = self._last[endpoint.name]
        if DONE not in counters or DONE not in last.counters:
            return 0.0
        return counters[DONE] - last.counters[DONE] - (self._ours[endpoint.metrics_urls] - last.ours)

    def fault(self, endpoint: Endpoint, counters: Mapping[str, float]) -> str | None:
        """Say what of the block was not between us and this server alone."""
        beyond = self.beyond(endpoint, counters)
        foreign = beyond - self.perhaps(endpoint)
        if foreign > 0:
            return f"{endpoint.name} answered {foreign:.0f} requests that were not ours"
        if beyond < 0:
            ours = self._ours[endpoint.metrics_urls] - self._last[endpoint.name].ours
            counted = f"{endpoint.name} counted {ours + beyond:.0f} of our {ours} requests"
            return f"{counted}: its metrics are another server's, or somebody answered in its place"
        return None
