"""See which calls of a trace overlap at a nominal speed, what they hold, and what a prefix cache of some size would know."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from agentload.model.trace import Trace
from agentload.tracefile.overview import BINS
from agentload.tracefile.places import Chain
from agentload.tracefile.playback import played
from agentload.tracefile.reuse import PoolCache

MOST_PLAYED: Final = 50_000
"""Calls that are played; what comes later is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What overlaps at a nominal speed, over time: the largest value in each of equal spans."""

    calls: int
    span_s: float
    running: tuple[int, ...]
    """Calls at once."""
    running_tokens: tuple[int, ...]
    """Tokens of their contexts and answers: what a server must hold."""
    live_tokens: tuple[int, ...]
    """Tokens of all sessions under way: what it must hold to forget nothing."""
    hits: Mapping[int, float]
    """Hit ratio of a pool of so many tokens."""


def load(trace: Trace, *, pools: Sequence[int] = ()) -> Load:
    """Play a trace; `pools` are sizes in tokens whose hit ratio is asked for."""
    chains: dict[str, Chain] = {}
    caches = {tokens: PoolCache(tokens) for tokens in pools}
    known = dict.fromkeys(pools, 0)
    total = 0
    changes: list[tuple[float, int, int, int]] = []
    """(instant, change of calls, of their tokens, of live tokens)"""
    calls = 0
    for call in islice(played(trace), MOST_PLAYED):
        calls += 1
        name = call.session.session
        chain = chains.pop(name, None) or Chain(trace.header, call.session)
        before = sum(place.tokens for place in chain.places)
        chain.turn(call.number)
        tokens = sum(place.tokens for place in chain.places)
        total += tokens
        for size, cache in caches.items():
            known[size] += cache.call(chain.places)
        held = tokens + call.turn.output
        changes += [(call.start_s, 1, held, tokens - before), (call.end_s, -1, -held, 0)]
        if call.number + 1 < len(call.session.turns):
            chains[name] = chain
        else:
            changes.append((call.end_s, 0, 0, -tokens))
    span_s, peaks = _peaks(changes)
    return Load(
        calls=calls,
        span_s=span_s,
        running=peaks[0],
        running_tokens=peaks[1],
        live_tokens=peaks[2],
        hits={size: known[size] / total if total else math.nan for size in pools},
    )


def _peaks(changes: list[tuple[float, int, int, int]]) -> tuple[float, tuple[tuple[int, ...], ...]]:
    """Return the length of a span and, for each figure, its largest value in each span."""
    if not changes:
        return 0.0, ((), (), ())
    ordered = np.array(sorted(changes))
    levels = ordered[:, 1:].cumsum(axis=0)
    end_s = float(ordered[-1, 0])
    bins = np.minimum((ordered[:, 0] / max(end_s, 1e-9) * BINS).astype(int), BINS - 1)
    peaks = np.zeros((BINS, 3))
    np.maximum.at(peaks, bins, levels)
    # A level also lasts into the spans in which nothing changes.
    last = np.zeros(3)
    for span in range(BINS):
        peaks[span] = np.maximum(peaks[span], last)
        inside = levels[bins == span]
        last = inside[-1] if len(inside) else last
    return end_s / BINS, tuple(tuple(int(value) for value in column) for column in peaks.T)
