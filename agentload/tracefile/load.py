"""Estimate a trace's load at a nominal speed: overlapping calls, their tokens, and cache hits.

There is no server and no queue: every call takes the time of its tokens.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from agentload.model.record import Record
from agentload.model.trace import Trace, Turn, total_tokens
from agentload.tracefile.overview import BINS
from agentload.tracefile.pace import Paced, TimedCall
from agentload.tracefile.reuse import Chain, PoolCache

PREFILL_TOKENS_PER_S: Final = 10_000.0
DECODE_TOKENS_PER_S: Final = 40.0
"""Coding agents see about 39 tokens/s from their providers (callanjfox/kv-cache-tester).

Prefill: judgement.
"""
MOST_PLAYED: Final = 50_000
"""Calls that are played; later ones are left out."""


def calls_of(trace: Trace) -> Iterator[TimedCall]:
    """Yield the calls of a trace in the order they start, at the nominal speed.

    A call that waits for a missing turn is left out.
    """
    return iter(Paced(trace, _nominal))


def _nominal(turn: Turn, at_s: float) -> tuple[float, float]:
    tokens = total_tokens(turn.add)
    return at_s, at_s + tokens / PREFILL_TOKENS_PER_S + turn.output / DECODE_TOKENS_PER_S


LoadChange: TypeAlias = tuple[float, int, int, int]
"""An instant, and by how much calls, their tokens and live tokens change then."""


class LoadCurve(Record):
    """The load over time: the largest value in each of equal spans."""

    calls: int
    span_s: float
    running: tuple[int, ...]
    running_tokens: tuple[int, ...]
    """Tokens of the running calls' contexts and answers, which a server must hold."""
    live_tokens: tuple[int, ...]
    """Tokens of all active sessions, which a server must hold to keep every prefix."""
    hits: Mapping[int, float]
    """Hit rate by pool size in tokens."""


def load(trace: Trace, *, pools: Sequence[int] = ()) -> LoadCurve:
    """Play a trace; `pools` are the sizes in tokens to compute hit rates for."""
    chains: dict[str, Chain] = {}
    """The contexts of the sessions that have calls left."""
    caches = {tokens: PoolCache(tokens) for tokens in pools}
    known = dict.fromkeys(pools, 0)
    total = 0
    changes: list[LoadChange] = []
    calls = 0
    for call in islice(calls_of(trace), MOST_PLAYED):
        calls += 1
        name = call.session.session
        chain = chains.pop(name, None) or Chain(trace.header, call.session)
        before = chain.tokens
        chain.turn(call.number)
        tokens = chain.tokens
        total += tokens
        for size, cache in caches.items():
            known[size] += cache.call(chain.places)
        held = tokens + call.turn.output
        changes.append((call.start_s, 1, held, tokens - before))
        changes.append((call.end_s, -1, -held, 0))
        if call.number + 1 < len(call.session.turns):
            chains[name] = chain
        else:
            changes.append((call.end_s, 0, 0, -tokens))
    span_s, (running, running_tokens, live_tokens) = _peaks(changes)
    return LoadCurve(
        calls=calls,
        span_s=span_s,
        running=running,
        running_tokens=running_tokens,
        live_tokens=live_tokens,
        hits={size: hits / total if total else math.nan for size, hits in known.items()},
    )


def _peaks(changes: list[LoadChange]) -> tuple[float, tuple[tuple[int, ...], ...]]:
    """Return the length of a span and the largest value of each figure in each span."""
    if not changes:
        return 0.0, ((), (), ())
    ordered = np.array(sorted(changes))
    levels = ordered[:, 1:].cumsum(axis=0)
    end_s = float(ordered[-1, 0])
    bins = np.minimum((ordered[:, 0] / max(end_s, 1e-9) * BINS).astype(int), BINS - 1)
    peaks = np.zeros((BINS, 3))
    np.maximum.at(peaks, bins, levels)
    # A level lasts through spans without changes.
    last = np.zeros(3)
    for span in range(BINS):
        peaks[span] = np.maximum(peaks[span], last)
        inside = levels[bins == span]
        if len(inside):
            last = inside[-1]
    return end_s / BINS, tuple(map(tuple, peaks.T.astype(int).tolist()))
