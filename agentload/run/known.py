"""What is known of a server: the last that it said of each thing. One page that is refused once is no other server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from agentload.endpoints.facts import LASTING, OF_A_START, Facts, changed, told
from agentload.endpoints.identity import Identity
from agentload.model.rows import FingerprintRow, Row
from agentload.telemetry.log_lines import StartUp

RISING: Final = ("requests_done", "prompt_tokens", "output_tokens", "prefix_queries", "preemptions")
"""Counters that no running server sets back."""
START: Final = "process_start_s"


def remembered(now: Identity, known: Identity) -> Identity:
    """Return what a server says, and what it said before where it does not answer now."""
    is_read = bool(now.counters or now.cache_config)
    return replace(
        now,
        models=now.models or known.models,
        version=now.version or known.version,
        max_model_len=now.max_model_len or known.max_model_len,
        cache_config=now.cache_config or known.cache_config,
        counters={**_start(known.counters), **now.counters} if is_read else known.counters,
        replicas=now.replicas if is_read else known.replicas,
        engines=now.engines if is_read else known.engines,
        settings=now.settings or known.settings,
        log=StartUp(**{each.name: getattr(now.log, each.name) or getattr(known.log, each.name) for each in fields(StartUp)}),
        gateway=now.gateway or known.gateway,
        emulated=now.emulated or known.emulated,
    )


def dated(identity: Identity, at_s: float) -> Identity:
    """Give a server that does not say when it was started the instant by which we know that it was."""
    return replace(identity, counters={START: at_s, **identity.counters})


def is_restarted(known: Identity, now: Identity) -> bool:
    """Tell whether another process answers: by its start, or, where several processes share one page and none is told, by its counters."""
    before, after = known.counters.get(START), now.counters.get(START)
    if before is not None and after is not None and before != after:
        return True
    return now.replicas == known.replicas and has_begun_anew(known.counters, now.counters)


def has_begun_anew(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Tell whether counters ran backwards."""
    return any(now[name] < before[name] for name in RISING if name in before and name in now)


def newly_missing(now: Identity, known: Identity) -> tuple[str, ...]:
    """Return the sources that answered the last time and do not now, with the reason."""
    before = {_source(each) for each in known.missing}
    return tuple(each for each in now.missing if _source(each) not in before)


def differences(first: Facts, known: Facts, now: Facts) -> tuple[str, ...]:
    """Say what is not as it was: what makes the arm against the *first* that was seen of it, what makes a start against the last."""
    return (*changed(first, now, LASTING), *changed(known, now, OF_A_START))


def _source(missing: str) -> str:
    return missing.rpartition(": ")[0]


def _start(counters: Mapping[str, float]) -> dict[str, float]:
    return {START: counters[START]} if START in counters else {}


def began_as(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return what each arm of a run was when it first told so, by its fingerprints."""
    out: dict[str, dict[str, Any]] = {}
    for row in sorted((row for row in rows if isinstance(row, FingerprintRow)), key=lambda row: (row.leg, row.at_ns)):
        out[row.arm] = {**told(json.loads(row.facts)), **out.get(row.arm, {})}
    return out
