"""Sum up a trace: lengths and waits, growth, arrivals and reuse."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from agentload.model.trace import Trace
from agentload.tracefile.fields import fields
from agentload.tracefile.reuse import IdealCache

SHARES: Final = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
BINS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How the values of one field are spread."""

    count: int
    mean: float
    quantiles: tuple[float, ...]
    """At `SHARES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Contexts of the calls of one index over all sessions that reach it."""

    call: int
    sessions: int
    q50: float
    q90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Tokens of all contexts and how many of them a prefix cache without bounds knows."""

    tokens: int
    known: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A trace at a glance."""

    sessions: int
    spawned: int
    turns: int
    last_start_s: float
    workloads: Mapping[str, int]
    """Sessions of each."""
    fields: Mapping[str, Summary]
    growth: tuple[Growth, ...]
    arrivals: tuple[int, ...]
    """Starts by the clock in each of equal spans until the last."""
    arrivals_cv: float | None
    """Coefficient of variation of the gaps between them."""
    reuse: Reuse
    reuse_by_event: Mapping[str, Reuse]
    events: Mapping[str, int]
    """Sessions in which each occurs."""


def overview(trace: Trace) -> Overview:
    """Read a trace and sum it up."""
    values: dict[str, array[float]] = defaultdict(lambda: array("d"))
    workloads: dict[str, int] = defaultdict(int)
    reuse: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    contexts: dict[int, array[int]] = defaultdict(lambda: array("q"))
    starts = array("d")
    events: dict[str, int] = defaultdict(int)
    spawned = turns = 0
    cache = IdealCache()
    for session in trace.sessions:
        turns += len(session.turns)
        workloads[session.workload] += 1
        for event in {turn.event for turn in session.turns if turn.event is not None}:
            events[event] += 1
        if session.start_s is None:
            spawned += 1
        else:
            starts.append(session.start_s)
        for name, value in fields(trace.header, session):
            values[name].append(value)
        for index, (tokens, known) in enumerate(cache.calls(trace.header, session)):
            kind = reuse[session.turns[index].event or ""]
            kind[0] += tokens
            kind[1] += known
            if _is_shown(index):
                contexts[index].append(tokens)
    return Overview(
        sessions=spawned + len(starts),
        spawned=spawned,
        turns=turns,
        last_start_s=starts[-1] if starts else 0.0,
        workloads=dict(workloads),
        fields={name: _summary(found) for name, found in values.items()},
        growth=tuple(_growth(index, found) for index, found in sorted(contexts.items())),
        arrivals=_histogram(starts),
        arrivals_cv=_cv(starts),
        reuse=_reuse(sum(tokens for tokens, _ in reuse.values()), sum(known for _, known in reuse.values())),
        reuse_by_event={event: _reuse(tokens, known) for event, (tokens, known) in reuse.items()},
        events=dict(events),
    )


def _reuse(tokens: int, known: int) -> Reuse:
    return Reuse(tokens=tokens, known=known, share=known / tokens if tokens else math.nan)


def _is_shown(index: int) -> bool:
    """Pick the calls 1, 2, 3, 5, 10, 20, 30, 50, 100 … of a session."""
    call = index + 1
    return call / 10 ** math.floor(math.log10(call)) in {1, 2, 3, 5}


def _summary(found: array[float]) -> Summary:
    every = np.asarray(found)
    return Summary(count=len(every), mean=float(every.mean()), quantiles=_quantiles(every, SHARES))


def _quantiles(every: npt.NDArray[np.float64] | npt.NDArray[np.int64], shares: Sequence[float]) -> tuple[float, ...]:
    # Values that occurred, not values between them.
    return tuple(np.quantile(every, shares, method="inverted_cdf").tolist())


def _growth(index: int, found: array[int]) -> Growth:
    q50, q90 = _quantiles(np.asarray(found), (0.5, 0.9))
    return Growth(call=index + 1, sessions=len(found), q50=q50, q90=q90)


def _histogram(starts: array[float]) -> tuple[int, ...]:
    if not starts:
        return ()
    return tuple(np.histogram(np.asarray(starts), bins=BINS, range=(0.0, max(starts[-1], 1e-3)))[0].tolist())


def _cv(starts: array[float]) -> float | None:
    gaps = np.diff(np.asarray(starts))
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else None
