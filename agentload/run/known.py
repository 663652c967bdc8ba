"""Track what a server said last, and what its counters show besides our calls.

One page that is refused once does not make another server. More requests counted than we sent are
somebody else's; fewer mean that others were answered elsewhere.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from agentload.dispatch.gateway import WHOLE_TOKENS, is_in_one_piece
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import LASTING, OF_A_START, Facts, changes, reported_facts
from agentload.endpoints.identity import Identity
from agentload.model import metrics
from agentload.model.client import MAX_LATE_MS, lateness
from agentload.model.commands import Status
from agentload.model.record import Record
from agentload.model.rows import CallRow, FingerprintRow, Row
from agentload.telemetry.log_lines import StartUp

RISING: Final = ("requests_done", "prompt_tokens", "output_tokens", "prefix_queries", "preemptions")
"""Counters that never fall on a running server."""
START: Final = "process_start_s"
SAID: Final = (
    "models",
    "version",
    "max_model_len",
    "cache_config",
    "settings",
    "gateway",
    "check_ms",
    "emulated",
)
"""Facts that a server may leave out once and still be the same server."""


def with_memory(now: Identity, known: Identity) -> Identity:
    """Return what a server says, completed by *known* where it does not answer now."""
    is_read = bool(now.counters or now.cache_config)
    paged = now if is_read else known
    return replace(
        now,
        **{name: getattr(now, name) or getattr(known, name) for name in SAID},
        counters={**_start(known.counters), **now.counters} if is_read else known.counters,
        replicas=paged.replicas,
        engines=paged.engines,
        log=StartUp(
            **{
                each.name: getattr(now.log, each.name) or getattr(known.log, each.name)
                for each in fields(StartUp)
            }
        ),
    )


def with_date(identity: Identity, at_s: float) -> Identity:
    """Add *at_s* as the start of a server that does not say when it was started."""
    return replace(identity, counters={START: at_s, **identity.counters})


def is_restarted(known: Identity, now: Identity) -> bool:
    """Tell whether another process answers, by its start time or by counters that fell.

    Several processes that share one page state no start time: there the counters decide.
    """
    before = known.counters.get(START)
    after = now.counters.get(START)
    if before is not None and after is not None and before != after:
        return True
    old, new = known.counters, now.counters
    fell = any(new[name] < old[name] for name in RISING if name in old and name in new)
    return now.replicas == known.replicas and fell


def newly_missing(now: Identity, known: Identity) -> tuple[str, ...]:
    """Return the sources that answered the last time and do not now, each with the reason."""
    before = {_source(each) for each in known.missing}
    return tuple(each for each in now.missing if _source(each) not in before)


def differences(first: Facts, known: Facts, now: Facts) -> tuple[str, ...]:
    """Return the facts that changed.

    Facts that make the arm are compared with the *first* seen, those of a start with the last.
    """
    return (*changes(first, now, LASTING), *changes(known, now, OF_A_START))


def _source(missing: str) -> str:
    return missing.rpartition(": ")[0]


def _start(counters: Mapping[str, float]) -> dict[str, float]:
    if START not in counters:
        return {}
    return {START: counters[START]}


def began_as(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return the first stated value of each fact, by arm, from the fingerprints of a run."""
    out: dict[str, dict[str, Any]] = {}
    for row in sorted(
        (row for row in rows if isinstance(row, FingerprintRow)),
        key=lambda row: (row.leg, row.at_ns),
    ):
        out[row.arm] = {**reported_facts(json.loads(row.facts)), **out.get(row.arm, {})}
    return out


COUNTED: Final[frozenset[Status]] = frozenset({"ok", "long", "garbage"})
"""Statuses of calls that a server counts as a success of its own."""
UNCOUNTED: Final[frozenset[Status]] = frozenset(
    {"refused", "connect_timeout", "busy", "http_error", "not_sent"}
)
"""Statuses of calls that a server never counts as a success.

It may count all others: a server can finish a call that we gave up.
"""
DONE: Final = "requests_done"


class _Reading(Record, kw_only=False):
    counters: Mapping[str, float]
    ours: int
    perhaps: int


class Tally:
    """Count our calls by the metrics pages that count them, too.

    An arm and its control share a server and its page; arms behind one gateway need not.
    """

    def __init__(self) -> None:
        self._ours: Counter[tuple[str, ...]] = Counter()
        self._perhaps: Counter[tuple[str, ...]] = Counter()
        self._last: dict[str, _Reading] = {}

    def ended(self, endpoint: Endpoint, model: str | None, ended: CallRow) -> None:
        """Count a call of ours, for a *model*, if the server may have counted the call."""
        if ended.status in UNCOUNTED:
            return
        # Behind a gateway an alias may be a model of another server.
        is_certain = ended.status in COUNTED and model not in endpoint.aliases
        (self._ours if is_certain else self._perhaps)[endpoint.metrics_urls] += 1

    def read(self, endpoint: Endpoint, counters: Mapping[str, float]) -> None:
        """Take these counters as the baseline of what follows."""
        urls = endpoint.metrics_urls
        self._last[endpoint.name] = _Reading(counters, self._ours[urls], self._perhaps[urls])

    def perhaps(self, endpoint: Endpoint) -> int:
        """Count the calls since the last reading that the server may have counted, or not."""
        return self._perhaps[endpoint.metrics_urls] - self._last[endpoint.name].perhaps

    def beyond(self, endpoint: Endpoint, counters: Mapping[str, float]) -> float:
        """Return how many more requests a server counted than it must have counted of ours.

        Below 0 the server has counted too few; 0 where it does not count.
        """
        last = self._last[endpoint.name]
        if DONE not in counters or DONE not in last.counters:
            return 0.0
        return (
            counters[DONE] - last.counters[DONE] - (self._ours[endpoint.metrics_urls] - last.ours)
        )

    def fault(self, endpoint: Endpoint, counters: Mapping[str, float]) -> str | None:
        """Say why the counters do not match our calls; None where they do."""
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
"""Share of long answers that may arrive in one piece: a stalled client merges some, too."""
LEAST: Final = 5
"""Fewest long answers by which buffering is judged."""


class Between:
    """Watch the calls of each arm for a gateway in between, block by block."""

    def __init__(self) -> None:
        self._deeds: dict[str, Counter[str]] = {}
        self._long: Counter[str] = Counter()
        self._whole: Counter[str] = Counter()
        self._lags_ms: defaultdict[str, list[float]] = defaultdict(list)

    def ended(self, ended: CallRow) -> None:
        """Note a call of ours."""
        if ended.gateway is not None:
            self._deeds.setdefault(ended.arm, Counter())[ended.gateway] += 1
        if (lag_ms := metrics.lag_ms(ended)) is not None:
            self._lags_ms[ended.arm].append(lag_ms)
        if ended.status == "ok" and (ended.output_tokens or 0) >= WHOLE_TOKENS:
            self._long[ended.arm] += 1
            self._whole[ended.arm] += is_in_one_piece(ended.output_tokens, ended.coalesced_reads)

    def reason(self, arm: str) -> str | None:
        """Say why the arm's block is invalid, or None; start counting its next block."""
        deeds = self._deeds.pop(arm, Counter())
        long = self._long.pop(arm, 0)
        whole = self._whole.pop(arm, 0)
        lag_ms = metrics.p99(self._lags_ms.pop(arm, []))
        if deeds:
            (name, _), *_ = deeds.most_common(1)
            told = f"a gateway answered {deeds.total()} calls in the server's place: {name}"
            return f"{arm}: {told}; switch that off, or go to the server itself"
        if long >= LEAST and whole > MOST * long:
            pieces = f"{arm}: {whole} of {long} answers arrived in one piece"
            gateway = "a gateway buffers streams, or answers from a cache"
            # A client that is held finds whole answers in one read, whoever sends them.
            if lag_ms is not None and lag_ms > MAX_LATE_MS:
                late = f"while this machine sent requests {lateness(lag_ms)}"
                first = "see agentload doctor first; if the machine keeps up"
                return f"{pieces} {late}: {first}, {gateway}"
            return f"{pieces}: {gateway}"
        return None
