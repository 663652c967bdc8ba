"""Find the break-even from a replay alone: each pair's calls give two lines over the KV tokens of the batch they decoded in.

The faster arm empties its batch sooner, so its calls see smaller batches; differences call by call would credit it with that. Two lines a
pair, each over its own arm's batches, do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.evidence import Calls, Floats, Ints
from advisor.statistics.break_even import judged
from advisor.statistics.line import MIN_PAIRS, Line
from advisor.verdict import BreakEven

MIN_CALLS = 8  # in a pair, on each arm
MIN_SPAN = 2.0  # largest over smallest batch that a pair has to span (5th to 95th percentile)


def _columns(calls: Sequence[Calls]) -> tuple[Ints, Floats, Floats]:
    known = [each for each in calls if each.batch_kv_tokens is not None]
    if not known:
        empty = np.zeros(0)
        return empty.astype(np.int64), empty, empty
    pair = np.concatenate([each.pair for each in known])
    tokens = np.concatenate([each.batch_kv_tokens for each in known if each.batch_kv_tokens is not None])
    tpot = np.concatenate([np.where(each.ok, each.tpot_ms, np.nan) for each in known])
    seen = np.isfinite(tokens) & np.isfinite(tpot) & (tpot > 0)
    return pair[seen], tokens[seen], tpot[seen]


def _lines(pair: Ints, tokens: Floats, tpot: Floats, unit: float) -> dict[int, Floats]:
    """Return (intercept, slope) of each pair with enough calls over a wide enough span; relative weights."""
    names, index = np.unique(pair, return_inverse=True)
    weight, x = 1 / tpot**2, tokens / unit
    sums = [np.bincount(index, weights=weight * term) for term in (np.ones_like(x), x, x * x, tpot, x * tpot)]
    s0, s1, s2, sy, sxy = sums
    determinant = s0 * s2 - s1 * s1
    count = np.bincount(index)
    low, high = np.full(names.size, np.inf), np.full(names.size, -np.inf)
    np.minimum.at(low, index, x)
    np.maximum.at(high, index, x)
    good = (count >= MIN_CALLS) & (high >= MIN_SPAN * low) & (determinant > 1e-12 * s0 * s2)
    return {
        int(name): np.array([(s2[i] * sy[i] - s1[i] * sxy[i]) / determinant[i], (s0[i] * sxy[i] - s1[i] * sy[i]) / determinant[i]])
        for i, name in enumerate(names)
        if good[i]
    }


def break_even_from_calls(
    arm: str, reference: Sequence[Calls], challenger: Sequence[Calls], *, own_users: float | None = None, prior_tokens: float | None = None
) -> BreakEven | None:
    """Return the break-even set, or None without KV tokens of the batch or with fewer than three pairs that span a range."""
    left, right = _columns(reference), _columns(challenger)
    if not left[0].size or not right[0].size:
        return None
    tokens = np.concatenate([left[1], right[1]])
    unit = float(tokens.max())
    base, other = _lines(*left, unit), _lines(*right, unit)
    shared = sorted(base.keys() & other.keys())
    if len(shared) < MIN_PAIRS:
        return None
    by_pair = np.array([other[name] - base[name] for name in shared])
    mean, covariance = by_pair.mean(axis=0), np.cov(by_pair.T) / len(shared)
    fitted = Line(
        intercept=float(mean[0]),
        slope=float(mean[1]) / unit,
        var_intercept=float(covariance[0, 0]),
        var_slope=float(covariance[1, 1]) / unit**2,
        covariance=float(covariance[0, 1]) / unit,
        df=len(shared) - 1,
        pairs=len(shared),
        lengths=0,
        lack_of_fit_p=None,
    )
    first, last = (float(each) for each in np.quantile(tokens, [0.05, 0.95]))
    return judged(arm, fitted, first=first, last=last, users=1.0 if own_users is None else own_users, prior_tokens=prior_tokens)
