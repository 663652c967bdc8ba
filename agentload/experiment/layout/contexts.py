"""Lay out a context sweep: calls of growing length, one at a time, each length once a pair in an order that is drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Final

from agentload.errors import UsageError
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.trace import Header, Segment, Session, Trace, Turn

SMALLEST: Final = 64
_UNITS: Final = {"": 1, "k": 1024, "m": 1024 * 1024}


def lengths(text: str) -> tuple[int, ...]:
    """Read `1k..128k` as every power of two between, both ends included; or a list `1k,4k,10k`."""
    if ".." not in text:
        return tuple(sorted({_length(part) for part in text.split(",")}))
    low, _, high = text.partition("..")
    first, last = _length(low), _length(high)
    if first > last:
        raise UsageError(f"'{text}' ends before it begins", hint="--context 1k..128k")
    found = [first]
    while found[-1] * 2 < last:
        found.append(found[-1] * 2)
    return tuple(found) if found[-1] == last else (*found, last)


def sweep(contexts: Sequence[int], *, pairs: int, output: int, seed: int) -> Trace:
    """Return a trace whose blocks are one call for each length; no two calls share a token beyond the template's."""
    rng = Random(seed)
    sessions: list[Session] = []
    for pair in range(pairs):
        order = sorted(contexts, key=lambda _: rng.random())
        for context in order:
            name = f"{pair}.{context}"
            turn = Turn(add=(Segment(role="user", tokens=context, key=name),), output=output)
            sessions.append(Session(session=name, workload=CONTEXT_SWEEP, start_s=float(len(sessions)), turns=(turn,)))
    return Trace(header=Header(name=CONTEXT_SWEEP, seed=seed), sessions=tuple(sessions))


def _length(text: str) -> int:
    match = re.fullmatch(r"(\d+)([km]?)", text.strip().lower())
    tokens = int(match[1]) * _UNITS[match[2]] if match else 0
    if tokens < SMALLEST:
        raise UsageError(f"'{text.strip()}' is no length of at least {SMALLEST} tokens", hint="--context 1k..128k")
    return tokens
