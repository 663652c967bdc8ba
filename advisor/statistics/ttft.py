"""Fit time to first token as a q + b n + c with a, b, c >= 0, on the tokens that were computed.

n = prompt - cached, and q = prompt^2 - cached^2 counts the causal pairs those tokens attend to (n^2 for a cold prompt). Coefficients below
zero predict negative times for short prompts, and an unweighted fit spends all its accuracy on the longest one, so residuals are relative.
"""

from dataclasses import replace

import numpy as np
from scipy import optimize

from advisor.evidence import Floats, Ints
from advisor.statistics import resampling
from advisor.statistics.line import cell_medians, length_index
from advisor.verdict import TtftCurve

_SCALE = np.array([1e8, 1e4, 1.0])  # puts the three columns on one footing
_UNITS = ("ms/token^2", "ms/token", "ms")
MIN_LENGTHS = 4  # one more than coefficients
MIN_PAIRS = 3  # fewer are not worth resampling as wholes
DRAWS = 500


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
    weights = np.sqrt(np.vstack([np.ones(units), resampling.draw_weights(units, draws=DRAWS)])[:, group])
    value, *drawn = (optimize.nnls(weight[:, None] * rows, weight)[0] / _SCALE for weight in weights)
    # Few units: the draws' own quantiles would be the range of three. Their error, widened and read against t, is not.
    spreads = [resampling.spread(float(v), column, units=units, lost=lost) for v, column in zip(value, np.array(drawn).T, strict=True)]
    method = f"non-negative least squares, relative residuals, Student's t over {units} {'block pairs' if lost == 1 else 'cells'}"
    found = (each.estimate(unit=unit, method=method) for each, unit in zip(spreads, _UNITS, strict=True))
    a, b, c = (replace(each, low=max(each.low or 0.0, 0.0)) for each in found)  # below zero lies no coefficient
    return TtftCurve(arm=arm, a=a, b=b, c=c, range_tokens=(float(lengths.min()), float(lengths.max())))
