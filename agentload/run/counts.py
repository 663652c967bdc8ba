"""Hold a server's count of answered requests against ours: more are somebody else's, fewer were answered by somebody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agentload.dispatch.gateway import WHOLE_TOKENS, is_in_one_piece
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


MOST: Final = 0.5
"""Share of long answers that may arrive in one piece: single ones do where our own side stalled."""
LEAST: Final = 5
"""Long answers that a judgement on buffering needs."""


class Between:
    """Listen to the calls of each arm, block by block."""

    def __init__(self) -> None:
        self._deeds: dict[str, Counter[str]] = {}
        self._long: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()

    def ended(self, ended: CallRow) -> None:
        """Note a call of ours."""
        if ended.gateway is not None:
            self._deeds.setdefault(ended.arm, Counter())[ended.gateway] += 1
        if ended.status == "ok" and (ended.output_tokens or 0) >= WHOLE_TOKENS:
            self._long[ended.arm] += 1
            self._whole[ended.arm] += is_in_one_piece(ended.output_tokens, ended.coalesced_reads)

    def reason(self, arm: str) -> str | None:
        """Say what makes the arm's block void, and forget it: the next block is another."""
        deeds, long, whole = self._deeds.pop(arm, Counter()), self._long.pop(arm, 0), self._whole.pop(arm, 0)
        if deeds:
            (name, _), *_ = deeds.most_common(1)
            told = f"a gateway answered {deeds.total()} calls in the server's place: {name}"
            return f"{arm}: {told}; switch that off, or go to the server itself"
        if long >= LEAST and whole > MOST * long:
            return f"{arm}: {whole} of {long} answers arrived in one piece: a gateway buffers streams, or answers from a cache"
        return None
