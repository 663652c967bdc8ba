"""Fit time to first token as a q + b n + c with a, b, c >= 0, on the tokens that were computed.

n = prompt - cached, and q = prompt^2 - cached^2 counts the causal pairs those tokens attend to (n^2 for a cold prompt). Coefficients below
zero predict negative times for short prompts, and an unweighted fit spends all its accuracy on the longest one, so residuals are relative.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints
from advisor.statistics import resampling
from advisor.statistics.line import cell_medians, length_index
from advisor.statistics.resampling import Spread
from advisor.verdict import TtftCurve

_SCALE = np.array([1e8, 1e4, 1.0])  # puts the three columns on one footing
_UNITS = ("ms/token^2", "ms/token", "ms")
MIN_LENGTHS = 4  # one more than coefficients
MIN_PAIRS = 3  # fewer are not worth resampling as wholes
DRAWS = 500


def _nonnegative(normal: Floats, right: Floats) -> Floats:
    """Return the non-negative least-squares solution of each 3x3 system: the best feasible face, all faces tried at once."""
    best = np.zeros_like(right)
    least = np.zeros(len(right))
    for size in (1, 2, 3):
        for face in combinations(range(3), size):
            part = normal[:, face][:, :, face]
            regular = np.linalg.matrix_rank(part) == size
            if not regular.any():
                continue
            solution = np.zeros_like(right)
            solution[np.ix_(regular, face)] = np.linalg.solve(part[regular], right[regular][:, face, None])[..., 0]
            loss = np.einsum("bi,bij,bj->b", solution, normal, solution) - 2 * np.einsum("bi,bi->b", solution, right)
            better = regular & (solution >= 0).all(axis=1) & (loss < least - 1e-12 * np.abs(least))
            best[better], least[better] = solution[better], loss[better]
    return best


def _coefficient(spread: Spread, scale: float, unit: str, method: str) -> Estimate:
    low, high = spread.interval()
    ends = (scale * max(low, 0.0), scale * high)  # below zero lies no coefficient
    return Estimate(value=scale * spread.value, low=ends[0], high=ends[1], n=spread.units, unit=unit, method=method)


def ttft_curve(arm: str, *, pair: Ints, computed_tokens: Floats, ttft_ms: Floats, prompt_tokens: Floats | None = None) -> TtftCurve | None:
    """Return the curve of one arm with intervals from resampled pairs (cells, below three pairs), or None with too few lengths."""
    seen = np.isfinite(ttft_ms) & np.isfinite(computed_tokens) & (ttft_ms > 0) & (computed_tokens > 0)
    if not seen.any():
        return None
    n, y, group = computed_tokens[seen], ttft_ms[seen], np.unique(pair[seen], return_inverse=True)[1]
    prompt = n if prompt_tokens is None else np.maximum(prompt_tokens[seen], n)
    column, lengths = length_index(n)
    other, _ = length_index(prompt)
    if lengths.size < MIN_LENGTHS:
        return None
    _, cell = np.unique(np.stack([group, column, other]), axis=1, return_inverse=True)
    size = np.bincount(cell)
    n, prompt, y = (np.bincount(cell, weights=n) / size, np.bincount(cell, weights=prompt) / size, cell_medians(cell, y))
    group = (np.bincount(cell, weights=group.astype(np.float64)) / size).round().astype(np.int64)
    rows = np.stack([prompt**2 - (prompt - n) ** 2, n, np.ones_like(n)], axis=1) / _SCALE / y[:, None]
    units, lost = int(group.max()) + 1, 1
    if units < MIN_PAIRS:
        group, units, lost = np.arange(n.size), n.size, len(_SCALE)
    normal, right = np.zeros((units, 3, 3)), np.zeros((units, 3))
    np.add.at(normal, group, rows[:, :, None] * rows[:, None, :])
    np.add.at(right, group, rows)
    weights = resampling.draw_weights(units, draws=DRAWS)
    value = _nonnegative(normal.sum(axis=0)[None], right.sum(axis=0)[None])[0]
    drawn = _nonnegative(np.einsum("du,uij->dij", weights, normal), weights @ right)
    # Few units: the draws' own quantiles would be the range of three. Their error, widened and read against t, is not.
    spreads = [resampling.spread(float(v), column, units=units, lost=lost) for v, column in zip(value, drawn.T, strict=True)]
    method = f"non-negative least squares, relative residuals, Student's t over {units} {'block pairs' if lost == 1 else 'cells'}"
    a, b, c = (_coefficient(each, 1 / scale, unit, method) for each, scale, unit in zip(spreads, _SCALE, _UNITS, strict=True))
    return TtftCurve(arm=arm, a=a, b=b, c=c, range_tokens=(float(lengths.min()), float(lengths.max())))
