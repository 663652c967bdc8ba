"""Summarise a trace: lengths and waits, growth, arrivals and reuse.

Fields name every length, count and wait of a session, so that showing, checking and
benchmarking a trace agree. A turn's event is part of its field names (`output@compact`);
fields of a whole session carry the event of its first turn. Lengths count what a turn
adds for the first time, not what it repeats after its history was rewritten.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from agentload.model.record import Record
from agentload.model.trace import Header, Key, Role, Session, Trace, Turn
from agentload.tracefile.reuse import IdealCache

Observation: TypeAlias = tuple[str, float]
SHARES: Final = (0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
BINS: Final = 60


def fields(header: Header, session: Session) -> Iterator[Observation]:
    """Yield the fields of a session with their values.

    Values are tokens, seconds or counts; `thinking` is a share of the output.
    """
    prefix = header.prefix_of(session)
    lengths = [segment.tokens for segment in prefix]
    seen: set[Key] = set()
    total = peak = sum(lengths)
    messages = 0
    request = 0
    whole = _label(session.turns[0].event)
    if total:
        yield f"prefix{whole}", total
    for index, turn in enumerate(session.turns):
        label = _label(turn.event)
        if turn.keep is not None:
            del lengths[turn.keep :]
            total = sum(lengths)
        added = [segment.tokens for segment in turn.add]
        lengths += added
        total += sum(added)
        peak = max(peak, total)
        brought = _new_lengths(turn, seen)
        if index == 0:
            yield f"first{whole}", total
        elif turn.wait == "user":
            yield f"request{whole}", request
            request = 0
        request += 1
        # A turn with a rewritten history adds a summary, unless it waited for a user.
        adds_summary = turn.keep is not None and turn.wait != "user"
        if "user" in brought and label == whole and not adds_summary:
            messages += 1
        yield f"context{label}", total
        yield from _content(brought, label)
        yield from _answer(turn, label, goes_on=_goes_on(session, index))
        if turn.wait is not None:
            yield f"wait.{turn.wait}{label}", turn.wait_s
    yield f"request{whole}", request
    yield f"calls{whole}", len(session.turns)
    yield f"messages{whole}", messages
    yield f"peak{whole}", peak


def _content(brought: Mapping[Role, Sequence[int]], label: str) -> Iterator[Observation]:
    for role, tokens in brought.items():
        if role == "image":
            for length in tokens:
                yield f"image{label}", length
            yield f"images{label}", len(tokens)
        else:
            yield f"{role}{label}", sum(tokens)


def _answer(turn: Turn, label: str, *, goes_on: bool) -> Iterator[Observation]:
    yield f"output{label}", turn.output
    yield f"output.{'step' if goes_on else 'reply'}{label}", turn.output
    if turn.thinking is not None and turn.output:
        yield f"thinking{label}", turn.thinking / turn.output


def _goes_on(session: Session, index: int) -> bool:
    """Return whether a turn's answer calls a tool.

    Then the next turn waits for a tool, or adds a result without rewriting the history.
    """
    if index + 1 == len(session.turns):
        return False
    after = session.turns[index + 1]
    adds_result = any(segment.role == "tool" for segment in after.add)
    return after.wait == "tool" or (after.keep is None and adds_result)


def _new_lengths(turn: Turn, seen: set[Key]) -> dict[Role, list[int]]:
    """Return the lengths of what a turn adds and no turn before it had, which is then *seen*."""
    brought: dict[Role, list[int]] = {}
    for segment in turn.add:
        is_written = segment.role in {"user", "tool", "image"} and segment.source is None
        if is_written and segment.key not in seen:
            brought.setdefault(segment.role, []).append(segment.tokens)
            seen.add(segment.key)
    return brought


def _label(event: str | None) -> str:
    """Return what a field's name ends with for an event."""
    return "" if event is None else f"@{event}"


class FieldSummary(Record):
    """The distribution of one field."""

    count: int
    mean: float
    quantiles: tuple[float, ...]


class ContextGrowth(Record):
    """Context tokens at the n-th call, over all sessions that have one."""

    call: int
    sessions: int
    q50: float
    q90: float


class PrefixReuse(Record):
    """Tokens of all contexts, and how many an unlimited prefix cache would serve."""

    tokens: int
    known: int
    share: float


class Overview(Record):
    """A trace at a glance."""

    sessions: int
    spawned: int
    turns: int
    last_start_s: float
    workloads: Mapping[str, int]
    fields: Mapping[str, FieldSummary]
    growth: tuple[ContextGrowth, ...]
    arrivals: tuple[int, ...]
    """Session starts in each of equal spans."""
    arrivals_cv: float | None
    """Coefficient of variation of the gaps between starts."""
    reuse: PrefixReuse
    reuse_by_event: Mapping[str, PrefixReuse]
    events: Mapping[str, int]


def overview(trace: Trace) -> Overview:
    """Read a trace and summarise it."""
    values: dict[str, array[float]] = defaultdict(lambda: array("d"))
    workloads = Counter[str]()
    tokens_of = Counter[str]()
    known_of = Counter[str]()
    # Floats: a sum of tokens may need more bits than its parts.
    contexts: dict[int, array[float]] = defaultdict(lambda: array("d"))
    starts = array("d")
    events = Counter[str]()
    spawned = turns = 0
    cache = IdealCache()
    for session in trace.sessions:
        turns += len(session.turns)
        workloads[session.workload] += 1
        events.update({turn.event for turn in session.turns if turn.event is not None})
        if session.start_s is None:
            spawned += 1
        else:
            starts.append(session.start_s)
        for name, value in fields(trace.header, session):
            values[name].append(value)
        for index, (tokens, known) in enumerate(cache.calls(trace.header, session)):
            event = session.turns[index].event or ""
            tokens_of[event] += tokens
            known_of[event] += known
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
        reuse=_reuse(tokens_of.total(), known_of.total()),
        reuse_by_event={event: _reuse(tokens_of[event], known_of[event]) for event in tokens_of},
        events=dict(events),
    )


def _reuse(tokens: int, known: int) -> PrefixReuse:
    return PrefixReuse(tokens=tokens, known=known, share=known / tokens if tokens else math.nan)


def _is_shown(index: int) -> bool:
    """Return whether to show this call of a session: 1, 2, 3, 5, 10, 20, 30, 50, 100, …."""
    call = index + 1
    return call / 10 ** math.floor(math.log10(call)) in {1, 2, 3, 5}


def _summary(found: array[float]) -> FieldSummary:
    every = np.asarray(found)
    return FieldSummary(
        count=len(every), mean=float(every.mean()), quantiles=_quantiles(every, SHARES)
    )


def _quantiles(
    every: npt.NDArray[np.float64] | npt.NDArray[np.int64], shares: Sequence[float]
) -> tuple[float, ...]:
    # Observed values, not interpolated ones.
    return tuple(np.quantile(every, shares, method="inverted_cdf").tolist())


def _growth(index: int, found: array[float]) -> ContextGrowth:
    q50, q90 = _quantiles(np.asarray(found), (0.5, 0.9))
    return ContextGrowth(call=index + 1, sessions=len(found), q50=q50, q90=q90)


def _histogram(starts: array[float]) -> tuple[int, ...]:
    if not starts:
        return ()
    span_s = max(starts[-1], 1e-3)
    counts, _ = np.histogram(np.asarray(starts), bins=BINS, range=(0.0, span_s))
    return tuple(counts.tolist())


def _cv(starts: array[float]) -> float | None:
    gaps = np.diff(np.asarray(starts))
    if len(gaps) > 1 and gaps.mean() > 0:
        return float(gaps.std() / gaps.mean())
    return None
