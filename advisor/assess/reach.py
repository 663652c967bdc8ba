"""Weigh the classes of the user's load, and say how much of it was tested.

A class weighs its share of the server's time where that is known, else the reference's time in
turns. Lengths are measured at which its calls usually lie, and beyond which none was tested.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from advisor.assess import coverage
from advisor.assess.coverage import SLACK, beyond, covered_by_all
from advisor.estimate import present
from advisor.evidence import Evidence, Floats
from advisor.results import Beyond, PooledAccuracy, TestedReach

# a tenth may be shorter: what is asked there dilutes; one
# in a hundred may be longer: `beyond_share` counts them
USUAL = (0.10, 0.99)


def shares(evidence: Evidence) -> tuple[tuple[str, float], ...]:
    """Return the weight of each workload, adding up to 1; equal where nothing was observed."""
    weights = _weights(evidence)
    total = sum(weights.values())
    if total <= 0:
        return tuple((name, 1 / len(weights)) for name in weights)
    return tuple((name, weight / total) for name, weight in weights.items())


def _weights(evidence: Evidence) -> dict[str, float]:
    """Return the server's time of each workload where known for all, else the turns' time."""
    stated = {each.name: each.gpu_time_share for each in evidence.workloads}
    known = {name: float(share) for name, share in stated.items() if share is not None}
    if len(known) == len(stated):
        return known
    took_ms = dict.fromkeys(stated, 0.0)
    for name, calls in evidence.calls_of(evidence.reference).items():
        took_ms[name] = float(np.nansum(calls.turn_ms[calls.ok]))
    return took_ms


def contexts(evidence: Evidence, workload: str) -> Floats | None:
    """Return the contexts of *workload*: the user's own, else those played on the reference.

    None where there are none.
    """
    for each in evidence.workloads:
        own = each.context_tokens
        if each.name == workload and own is not None and own.size:
            return own
    calls = evidence.calls(workload, evidence.reference)
    if calls is None:
        return None
    lengths = coverage.lengths(calls)
    known = lengths[np.isfinite(lengths)]
    return known if known.size else None


def usual(lengths: Floats | None) -> tuple[float, float] | None:
    """Return the *lengths* between which calls usually lie; None where none are known."""
    if lengths is None:
        return None
    low, high = np.quantile(lengths, USUAL)
    return float(low), float(high)


def lengths_about(tested: Iterable[float], between: tuple[float, float] | None) -> frozenset[float]:
    """Return those of the *tested* lengths that speak about calls *between* two lengths.

    At each end that is the first length that covers it; where none is long enough, the longest
    speaks for as far as it goes.
    """
    lengths = sorted(set(tested))
    if between is None or not lengths:
        return frozenset(lengths)
    shortest, longest = between
    first = _first_covering(lengths, shortest)
    last = _first_covering(lengths, longest)
    return frozenset(each for each in lengths if first <= each <= last)


def _first_covering(lengths: Sequence[float], end: float) -> float:
    """Return the first of the rising *lengths* that covers calls of *end* tokens, or the last."""
    for each in lengths:
        if SLACK * each >= end:
            return each
    return lengths[-1]


def represented_shares(tested: Sequence[float], contexts: Floats) -> Floats:
    """Return the share of calls with such *contexts* that each *tested* length represents.

    *tested* rises. A length represents those that no shorter one covers, the longest all that are
    longer.
    """
    ends = SLACK * np.asarray(tested[:-1], dtype=np.float64)
    representing = np.searchsorted(ends, contexts, side="left")
    counts = np.bincount(representing, minlength=len(tested))
    return counts / contexts.size


def _of_workload(
    evidence: Evidence, arm: str, workload: str, tested_to: float | None, timed: Beyond | None
) -> TestedReach:
    """Return the reach for a workload whose answers were compared up to *tested_to* tokens."""
    lengths = contexts(evidence, workload)
    reach = TestedReach(arm=arm, workload=workload, usual=usual(lengths), longest=None, timed=timed)
    if lengths is None:
        return reach
    asked = None if tested_to is None else beyond(lengths, tested_to)
    return replace(reach, longest=float(lengths.max()), asked=asked)


def _asked(parts: Sequence[TestedReach], shares: Sequence[float]) -> Beyond | None:
    """Return what of the mix lies beyond the lengths at which answers were compared."""
    known = []
    whole = calls = tokens = 0.0
    for part, share in zip(parts, shares, strict=True):
        if part.asked is not None:
            known.append(part.asked)
            whole += share
            calls += share * part.asked.calls
            tokens += share * part.asked.tokens
    if whole <= 0:
        return None
    return Beyond(to=covered_by_all(known), calls=calls / whole, tokens=tokens / whole)


def reaches(
    evidence: Evidence, shares: tuple[tuple[str, float], ...], accuracy: Sequence[PooledAccuracy]
) -> tuple[TestedReach, ...]:
    """Return the reach of every challenger, for each workload and for the whole mix.

    The mix weighs workloads by their shares.
    """
    tested_to = {(each.arm, each.workload): each.asked_to for each in accuracy}
    out = []
    for arm in evidence.challengers:
        beyond_timed = [
            (own, coverage.beyond_timed(evidence, arm.name, own)) for own in evidence.trace
        ]
        timed = {own.workload: found for own, found in beyond_timed}
        parts = []
        for name, _ in shares:
            asked_to = tested_to.get((arm.name, name))
            parts.append(_of_workload(evidence, arm.name, name, asked_to, timed.get(name)))
        asked = _asked(parts, [share for _, share in shares])
        out.append(_of_mix(arm.name, parts, asked, coverage.together(beyond_timed)))
        out.extend(parts)
    return tuple(out)


def _of_mix(
    arm: str, parts: Sequence[TestedReach], asked: Beyond | None, timed: Beyond | None
) -> TestedReach:
    """Return the reach of the whole mix: its usual lengths span those of all workloads."""
    usual = present(part.usual for part in parts)
    lows = [low for low, _ in usual]
    highs = [high for _, high in usual]
    longest = present(part.longest for part in parts)
    return TestedReach(
        arm=arm,
        workload=None,
        usual=(min(lows), max(highs)) if usual else None,
        longest=max(longest, default=None),
        asked=asked,
        timed=timed,
    )
