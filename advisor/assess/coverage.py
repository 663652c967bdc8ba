"""Compare the calls that were played with the user's own trace, by length and by share.

A context is timed where calls as long as it were played in enough block pairs, or as often as
the trace has them: one stray call says nothing. It represents contexts up to a tenth longer.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np

from advisor.estimate import present
from advisor.evidence import Arm, Calls, Evidence, Floats, Ints, OwnCalls
from advisor.results import Beyond
from advisor.statistics.groups import group_ends, group_numbers
from advisor.statistics.paired import MIN_PAIRS, same_turns
from advisor.verdict import Coverage, Quantiles, Quantity

SLACK = 1.1  # a length represents those up to a tenth above it
# of how often the trace's calls are as long: failed calls and the draw leave fewer
AS_OFTEN = 0.5
LEVELS = (0.10, 0.50, 0.90, 0.99, 1.0)
UNTIMED = Beyond(to=0.0, calls=1.0, tokens=1.0)


def beyond(contexts: Floats, length: float, *, slack: float = SLACK) -> Beyond:
    """Return the share of calls, and of their tokens, that *length* does not cover.

    It covers contexts up to *slack* times as long.
    """
    is_longer = contexts > slack * length
    tokens = contexts[is_longer].sum() / max(1.0, contexts.sum())
    return Beyond(to=length, calls=float(is_longer.mean()), tokens=float(tokens))


def lengths(calls: Calls) -> Floats:
    """Return how long the context of each call was when it ended."""
    return calls.prompt_tokens + calls.output_tokens


def timed_to(contexts: Floats, pairs: Ints, own: Floats) -> float | None:
    """Return the longest context that was timed; None without calls.

    Calls had these *contexts* in these block *pairs*; *own* are the contexts of the trace.
    """
    if not contexts.size:
        return None
    by_pairs = _in_enough_pairs(contexts, pairs)
    by_share = _as_often(contexts, own)
    return max(by_pairs, by_share)


def _in_enough_pairs(contexts: Floats, pairs: Ints) -> float:
    """Return the longest context that enough pairs reach; all of them where there are few."""
    _, longest = group_ends(group_numbers(pairs), contexts, contexts)
    rising = np.sort(longest)
    enough = min(MIN_PAIRS, rising.size)
    return float(rising[-enough])


def _as_often(contexts: Floats, own: Floats) -> float:
    """Return the context up to which long calls were played about as often as in the trace."""
    rising = np.sort(contexts)
    calls = rising.size
    played_as_long = np.arange(calls, 0, -1) / calls
    own_shorter = np.searchsorted(np.sort(own), rising, side="right") / own.size
    own_as_long = 1 - own_shorter
    rare = np.flatnonzero(played_as_long < AS_OFTEN * own_as_long)
    last = rare[0] - 1 if rare.size else -1
    return float(rising[last])


def beyond_timed(evidence: Evidence, arm: str, own: OwnCalls) -> Beyond | None:
    """Return what of a class lies beyond the contexts timed on both the reference and *arm*.

    None where nothing was timed.
    """
    sides = evidence.sides(own.workload, arm)
    if sides is None:
        return None
    reference, _ = sides
    rows, _ = same_turns(*sides)
    contexts = lengths(reference)[rows]
    pairs = reference.pair[rows]
    is_known = np.isfinite(contexts)
    length = timed_to(contexts[is_known], pairs[is_known], own.context_tokens)
    if length is None:
        return None
    return beyond(own.context_tokens, length)


def together(parts: Sequence[tuple[OwnCalls, Beyond | None]]) -> Beyond | None:
    """Return what lies beyond of all classes, where each call weighs alike.

    A class that was not timed lies beyond altogether.
    """
    timed = present(each for _, each in parts)
    if not timed:
        return None
    shares = [each or UNTIMED for _, each in parts]
    calls = np.array([own.calls for own, _ in parts], dtype=np.float64)
    tokens = calls * [own.context_tokens.mean() for own, _ in parts]
    calls_beyond = calls @ [each.calls for each in shares]
    tokens_beyond = tokens @ [each.tokens for each in shares]
    return Beyond(
        to=covered_by_all(timed),
        calls=float(calls_beyond / calls.sum()),
        tokens=float(tokens_beyond / max(1.0, tokens.sum())),
    )


def covered_by_all(parts: Sequence[Beyond]) -> float:
    """Return the length up to which every class is covered; the longest, if all are whole."""
    ends = [each.to for each in parts if each.calls > 0]
    if ends:
        return min(ends)
    return max(each.to for each in parts)


def refusal(evidence: Evidence, arm: str) -> Beyond | None:
    """Return what of the whole trace is longer than *arm* takes.

    None where the reference takes no more of it, or either limit is unknown.
    """
    mine, theirs = (_beyond_window(evidence, each) for each in evidence.both(arm))
    if mine is None or theirs is None or mine.calls <= theirs.calls:
        return None
    return mine


def _beyond_window(evidence: Evidence, arm: Arm) -> Beyond | None:
    """Return what of the trace is longer than *arm* takes; None where its limit is unknown."""
    window = arm.max_model_len
    if window is None or not evidence.trace:
        return None
    return together(
        [(own, beyond(own.context_tokens, window, slack=1.0)) for own in evidence.trace]
    )


def coverages(evidence: Evidence) -> tuple[Coverage, ...]:
    """Return the coverage of the trace by the reference's calls, whole and by class.

    Classes are left out where there is only one.
    """
    if not evidence.trace:
        return ()
    parts = [(own, beyond_timed(evidence, evidence.reference, own)) for own in evidence.trace]
    played = [evidence.calls(own.workload, evidence.reference) for own in evidence.trace]
    out = [_coverage(None, evidence.trace, together(parts), present(played))]
    if len(parts) > 1:
        for (own, found), calls in zip(parts, played, strict=True):
            out.append(_coverage(own.workload, (own,), found, present([calls])))
    return tuple(out)


def _coverage(
    workload: str | None, own: Sequence[OwnCalls], found: Beyond | None, played: Sequence[Calls]
) -> Coverage:
    """Return the coverage of the classes *own*, of which *found* lies beyond what was timed."""
    untested = found or UNTIMED
    return Coverage(
        workload=workload,
        calls=sum(each.calls for each in own),
        played=sum(map(len, played)),
        call_share=1 - untested.calls,
        token_share=1 - untested.tokens,
        timed_to=None if found is None else found.to,
        longest=max(float(each.context_tokens.max()) for each in own),
        is_whole=all(each.is_whole for each in own),
        quantiles=tuple(_quantiles(own, played)),
    )


def _quantiles(own: Sequence[OwnCalls], played: Sequence[Calls]) -> Iterator[Quantiles]:
    """Yield, quantity by quantity, the quantiles of the trace's calls and of those played."""
    calls = [each.calls for each in own]
    for quantity, of_trace, of_played in QUANTITIES:
        in_trace = [of_trace(each) for each in own]
        seen = present(map(of_played, played))
        sizes = [column.size for column in seen]
        yield Quantiles(
            quantity=quantity, trace=quantiles(in_trace, calls), played=quantiles(seen, sizes)
        )


def _hit_rate(calls: Calls) -> Floats | None:
    if calls.computed_tokens is None:
        return None
    computed = calls.computed_tokens / np.maximum(calls.prompt_tokens, 1)
    return 1 - computed


_OfTrace: TypeAlias = Callable[[OwnCalls], Floats]
_OfPlayed: TypeAlias = Callable[[Calls], Floats | None]

QUANTITIES: Final[tuple[tuple[Quantity, _OfTrace, _OfPlayed], ...]] = (
    ("context_tokens", attrgetter("context_tokens"), lengths),
    ("new_tokens", attrgetter("new_tokens"), attrgetter("computed_tokens")),
    ("output_tokens", attrgetter("output_tokens"), attrgetter("output_tokens")),
    ("wait_s", attrgetter("wait_s"), attrgetter("wait_s")),
    ("hit_rate", attrgetter("hit_rate"), _hit_rate),
)
"""Each quantity, with the column of the trace and that of the played calls, which may lack it."""


def quantiles(columns: Sequence[Floats], calls: Sequence[int]) -> tuple[float, ...]:
    """Return q10, q50, q90, q99 and the largest value; empty without values.

    The values of a column represent its number of *calls*.
    """
    known = [column[np.isfinite(column)] for column in columns]
    values = np.concatenate([np.zeros(0), *known])
    if not values.size:
        return ()
    weights = []
    for column, represented in zip(known, calls, strict=True):
        weight = represented / max(1, column.size)
        weights.append(np.full(column.size, weight))
    found = np.quantile(values, LEVELS, weights=np.concatenate(weights), method="inverted_cdf")
    return tuple(found.tolist())
