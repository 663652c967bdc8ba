"""Weigh the classes of the user's load, and say how much of it was tested.

A class weighs its share of the server's time where that is known, else the reference's time in
turns. Lengths are measured at which its calls usually lie, and beyond which none was tested.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from advisor.assess import coverage
from advisor.assess.coverage import SLACK, beyond
from advisor.case import Beyond, PooledAccuracy, TestedReach
from advisor.evidence import Evidence, Floats

USUAL = (
    0.10,
    0.99,
    # a tenth may be shorter: what is asked there dilutes; one
    # in a hundred may be longer: `beyond_share` counts them
)


def shares(evidence: Evidence) -> tuple[tuple[str, float], ...]:
    """Return the weight of each workload, adding up to 1; equal where nothing was observed."""
    told = {each.name: each.gpu_time_share for each in evidence.workloads}
    weights = {name: float(share) for name, share in told.items() if share is not None}
    if len(weights) < len(told):
        weights = {}
        for name in told:
            calls = evidence.calls(name, evidence.reference)
            weights[name] = 0.0 if calls is None else float(np.nansum(calls.turn_ms[calls.ok]))
    total = sum(weights.values())
    if total <= 0:
        return tuple((name, 1 / len(told)) for name in told)
    return tuple((name, weight / total) for name, weight in weights.items())


def contexts(evidence: Evidence, workload: str) -> Floats | None:
    """Return the contexts of *workload*: the user's own, else those played on the reference."""
    own = next((each.context_tokens for each in evidence.workloads if each.name == workload), None)
    if own is not None and own.size:
        return own
    calls = evidence.calls(workload, evidence.reference)
    if calls is None:
        return None
    lengths = calls.prompt_tokens + calls.output_tokens
    return lengths[np.isfinite(lengths)]


def usual(evidence: Evidence, workload: str) -> tuple[float, float] | None:
    """Return the lengths between which calls of *workload* usually lie; None where unknown."""
    lengths = contexts(evidence, workload)
    if lengths is None or not lengths.size:
        return None
    low, high = np.quantile(lengths, USUAL)
    return float(low), float(high)


def own(tested: Iterable[float], between: tuple[float, float] | None) -> frozenset[float]:
    """Return those of the *tested* lengths that speak about calls *between* two lengths.

    At each end that is the first length that covers it; where none is long enough, the longest
    speaks for as far as it goes.
    """
    lengths = sorted(set(tested))
    if between is None or not lengths:
        return frozenset(lengths)
    first, last = (
        next((each for each in lengths if SLACK * each >= end), lengths[-1]) for end in between
    )
    return frozenset(each for each in lengths if first <= each <= last)


def standing(tested: Sequence[float], contexts: Floats) -> Floats:
    """Return the share of calls with such *contexts* that each *tested* length represents.

    *tested* rises. A length represents those that no shorter one covers, the longest all that are
    longer.
    """
    ends = SLACK * np.asarray(tested[:-1], dtype=np.float64)
    counts = np.bincount(np.searchsorted(ends, contexts, side="left"), minlength=len(tested))
    return counts / contexts.size


def _one(
    evidence: Evidence, arm: str, workload: str, tested_to: float | None, timed: Beyond | None
) -> TestedReach:
    lengths = contexts(evidence, workload)
    if lengths is None or not lengths.size:
        return TestedReach(arm=arm, workload=workload, usual=None, longest=None, timed=timed)
    return TestedReach(
        arm=arm,
        workload=workload,
        usual=usual(evidence, workload),
        longest=float(lengths.max()),
        asked=None if tested_to is None else beyond(lengths, tested_to),
        timed=timed,
    )


def _asked(parts: Sequence[tuple[float, TestedReach]]) -> Beyond | None:
    """Return what of the mix lies beyond the lengths at which answers were compared."""
    known = [(share, part.asked) for share, part in parts if part.asked is not None]
    weight = sum(share for share, _ in known)
    if weight <= 0:
        return None
    return Beyond(
        to=min(
            (each.to for _, each in known if each.calls > 0),
            default=max(each.to for _, each in known),
        ),
        calls=sum(share * each.calls for share, each in known) / weight,
        tokens=sum(share * each.tokens for share, each in known) / weight,
    )


def reaches(
    evidence: Evidence, shares: tuple[tuple[str, float], ...], accuracy: Sequence[PooledAccuracy]
) -> tuple[TestedReach, ...]:
    """Return the reach of every challenger, for each workload and for the whole mix.

    The mix weighs workloads by their shares.
    """
    tested = {(each.arm, each.workload): each.asked_to for each in accuracy}
    out = []
    for arm in evidence.challengers:
        timed = {
            own.workload: coverage.beyond_timed(evidence, arm.name, own) for own in evidence.trace
        }
        parts = [
            _one(evidence, arm.name, name, tested.get((arm.name, name)), timed.get(name))
            for name, _ in shares
        ]
        ends = [part.usual for part in parts if part.usual is not None]
        out.append(
            TestedReach(
                arm=arm.name,
                workload=None,
                usual=(min(low for low, _ in ends), max(high for _, high in ends))
                if ends
                else None,
                longest=max(
                    (part.longest for part in parts if part.longest is not None), default=None
                ),
                asked=_asked(
                    [(share, part) for (_, share), part in zip(shares, parts, strict=True)]
                ),
                timed=coverage.together([(own, timed[own.workload]) for own in evidence.trace]),
            )
        )
        out.extend(parts)
    return tuple(out)
