"""Compare the calls that were played with the user's own trace, by length and by share.

A context is timed where calls as long as it were played in enough block pairs, or as often as
the trace has them: one stray call says nothing. It represents contexts up to a tenth longer.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from advisor.case import Beyond
from advisor.evidence import Arm, Calls, Evidence, Floats, Ints, OwnCalls, present
from advisor.statistics.paired import MIN_PAIRS, same_turns
from advisor.verdict import Coverage, Quantiles, Quantity

SLACK = 1.1  # a length represents those up to a tenth above it
# of how often the trace's calls are as long: failed calls and the draw leave fewer
AS_OFTEN = 0.5
LEVELS = (0.10, 0.50, 0.90, 0.99, 1.0)


def beyond(contexts: Floats, length: float, *, slack: float = SLACK) -> Beyond:
    """Return the share of calls, and of their tokens, that *length* does not cover.

    It covers contexts up to *slack* times as long.
    """
    is_longer = contexts > slack * length
    return Beyond(
        to=length,
        calls=float(is_longer.mean()),
        tokens=float(contexts[is_longer].sum() / max(1.0, contexts.sum())),
    )


def lengths(calls: Calls) -> Floats:
    """Return how long the context of each call was when it ended."""
    return calls.prompt_tokens + calls.output_tokens


def timed_to(contexts: Floats, pairs: Ints, own: Floats) -> float | None:
    """Return the longest context that was timed; None without calls.

    Calls had these *contexts* in these block *pairs*; *own* are the contexts of the trace.
    """
    if not contexts.size:
        return None
    return max(_in_enough_pairs(contexts, pairs), _as_often(contexts, own))


def _in_enough_pairs(contexts: Floats, pairs: Ints) -> float:
    """Return the longest context that enough pairs reach; all of them where there are few."""
    names, place = np.unique(pairs, return_inverse=True)
    longest = np.zeros(names.size)
    np.maximum.at(longest, place, contexts)
    return float(np.sort(longest)[-min(MIN_PAIRS, names.size)])


def _as_often(contexts: Floats, own: Floats) -> float:
    """Return the context up to which long calls were played about as often as in the trace."""
    ordered = np.sort(contexts)
    # share of calls that are at least as long
    played = np.arange(ordered.size, 0, -1) / ordered.size
    wanted = 1 - np.searchsorted(np.sort(own), ordered, side="right") / own.size
    rare = np.flatnonzero(played < AS_OFTEN * wanted)
    return float(ordered[rare[0] - 1] if rare.size else ordered[-1])


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
    known = np.isfinite(contexts)
    length = timed_to(contexts[known], reference.pair[rows][known], own.context_tokens)
    return None if length is None else beyond(own.context_tokens, length)


def together(parts: Sequence[tuple[OwnCalls, Beyond | None]]) -> Beyond | None:
    """Return what lies beyond of all classes, where each call weighs alike.

    A class that was not timed lies beyond altogether.
    """
    found = [each for _, each in parts if each is not None]
    if not found:
        return None
    calls = np.array([own.calls for own, _ in parts], dtype=np.float64)
    tokens = calls * [own.context_tokens.mean() for own, _ in parts]
    none = Beyond(to=0.0, calls=1.0, tokens=1.0)
    shares = [each or none for _, each in parts]
    return Beyond(
        to=min(
            (each.to for each in found if each.calls > 0), default=max(each.to for each in found)
        ),
        calls=float(calls @ [each.calls for each in shares] / calls.sum()),
        tokens=float(tokens @ [each.tokens for each in shares] / max(1.0, tokens.sum())),
    )


def refusal(evidence: Evidence, arm: str) -> Beyond | None:
    """Return what of the whole trace is longer than *arm* takes.

    None where the reference takes no more of it, or either limit is unknown.
    """
    mine, theirs = (_beyond_window(evidence, each) for each in evidence.both(arm))
    return mine if mine is not None and theirs is not None and mine.calls > theirs.calls else None


def _beyond_window(evidence: Evidence, arm: Arm) -> Beyond | None:
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
    return tuple(_coverages(evidence)) if evidence.trace else ()


def _coverages(evidence: Evidence) -> Iterator[Coverage]:
    parts = [(own, beyond_timed(evidence, evidence.reference, own)) for own in evidence.trace]
    played = {
        own.workload: evidence.calls(own.workload, evidence.reference) for own in evidence.trace
    }
    yield _coverage(
        None,
        evidence.trace,
        together(parts),
        [each for each in played.values() if each is not None],
    )
    for own, found in parts if len(parts) > 1 else ():
        calls = played[own.workload]
        yield _coverage(own.workload, (own,), found, [] if calls is None else [calls])


def _coverage(
    workload: str | None, own: Sequence[OwnCalls], found: Beyond | None, played: Sequence[Calls]
) -> Coverage:
    return Coverage(
        workload=workload,
        calls=sum(each.calls for each in own),
        played=sum(len(each) for each in played),
        call_share=0.0 if found is None else 1 - found.calls,
        token_share=0.0 if found is None else 1 - found.tokens,
        timed_to=None if found is None else found.to,
        longest=max(float(each.context_tokens.max()) for each in own),
        is_whole=all(each.is_whole for each in own),
        quantiles=tuple(_quantiles(own, played)),
    )


def _quantiles(own: Sequence[OwnCalls], played: Sequence[Calls]) -> Iterator[Quantiles]:
    """Yield, quantity by quantity, the quantiles of the trace's calls and of those played."""
    calls = [each.calls for each in own]
    for quantity, of_trace, of_played in QUANTITIES:
        seen = present(of_played(each) for each in played)
        yield Quantiles(
            quantity=quantity,
            trace=quantiles([of_trace(each) for each in own], calls),
            played=quantiles(seen, [column.size for column in seen]),
        )


def _hit_rate(calls: Calls) -> Floats | None:
    if calls.computed_tokens is None:
        return None
    return 1 - calls.computed_tokens / np.maximum(calls.prompt_tokens, 1)


QUANTITIES: Final[
    tuple[tuple[Quantity, Callable[[OwnCalls], Floats], Callable[[Calls], Floats | None]], ...]
] = (
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
    weights = np.concatenate(
        [
            np.full(column.size, each / max(1, column.size))
            for column, each in zip(known, calls, strict=True)
        ]
    )
    return tuple(np.quantile(values, LEVELS, weights=weights, method="inverted_cdf").tolist())
