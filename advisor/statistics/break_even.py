"""Find where two lines cross as a set: Fieller's, of the paired difference (Fieller 1954).

The difference arm - reference is fitted as one line over KV tokens of the whole batch. Its
zero is a ratio of two noisy numbers, so the points that cannot be told from zero form an
interval, two rays, or the whole line; a mean plus or minus something does not exist for it.

A replay alone gives two lines a pair, each over the KV tokens of the batches that its
own arm's calls decoded in. The faster arm empties its batch sooner, so its calls see
smaller batches; differences call by call would credit it with that, two lines do not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from advisor.evidence import Calls, ContextSweep, Floats, Ints
from advisor.statistics import line
from advisor.statistics.line import MIN_PAIRS, FittedLine, Grid, on_grid
from advisor.verdict import BreakEven

MIN_CALLS = 8  # in a pair, on each arm
_TAIL = 2.2  # standard deviations that hold 95% of a normal whose own deviation is half-normal
# slow wander of an arm that few pairs do not show: half
# of 2%, with probability one half (see `starts`)
_WANDER = 0.01
MIN_SPAN = 2.0  # largest over smallest batch that a pair has to span (5th to 95th percentile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fieller:
    """Hold the lengths where a line cannot be distinguished from zero.

    interval: in [low, high]; rays: outside (low, high); line: everywhere.
    """

    shape: Literal["interval", "rays", "line"]
    low: float
    high: float


def fieller(fitted: FittedLine, level: float = 0.95) -> Fieller:
    """Return Fieller's set of the zero of *fitted*."""
    t2 = fitted.reach(level) ** 2
    a = fitted.slope**2 - t2 * fitted.var_slope
    b = fitted.intercept * fitted.slope - t2 * fitted.covariance
    c = fitted.intercept**2 - t2 * fitted.var_intercept
    discriminant = b * b - a * c
    if a == 0 or (a < 0 and discriminant <= 0):
        return Fieller(shape="line", low=-math.inf, high=math.inf)
    root = math.sqrt(max(discriminant, 0.0))
    roots = sorted(((-b - root) / a, (-b + root) / a))
    shape: Literal["interval", "rays"] = "interval" if a > 0 else "rays"
    return Fieller(shape=shape, low=roots[0], high=roots[1])


def difference_grid(
    reference: ContextSweep, arm: ContextSweep, users: int
) -> tuple[Grid, Grid] | None:
    """Return (arm - reference, reference) over the pairs that both played, or None.

    Only calls at this batch size count.
    """
    left = reference.users == users
    right = arm.users == users
    if not left.any() or not right.any():
        return None
    # One grid for both, so that equal lengths fall into
    # equal columns; odd pair numbers are the arm's.
    pair = np.concatenate([2 * reference.pair[left], 2 * arm.pair[right] + 1])
    contexts = np.concatenate([reference.context_tokens[left], arm.context_tokens[right]])
    latencies = np.concatenate([reference.itl_ms[left], arm.itl_ms[right]])
    both = on_grid(pair, users * contexts, latencies)
    is_arm = both.pairs % 2 == 1
    theirs = both.pairs[~is_arm] // 2
    mine = both.pairs[is_arm] // 2
    shared, at_left, at_right = np.intersect1d(theirs, mine, return_indices=True)
    if not shared.size:
        return None
    base = both.values[~is_arm][at_left]
    other = both.values[is_arm][at_right]
    difference = Grid(pairs=shared, lengths=both.lengths, values=other - base)
    return difference, replace(difference, values=base)


def with_starts(fitted: FittedLine, base: Floats, *, spread: float, starts: int = 1) -> FittedLine:
    """Return the line of differences with the variance that starts add to either arm.

    What a start adds is a share of the *base* line, drawn *starts* times. *spread* is that of one
    arm, in log units. The wander of an arm is added as far as pairs do not show it.
    """
    if spread == 0:
        return fitted
    of_starts = (_TAIL * spread) ** 2 * 2
    of_wander = (1.96 * _WANDER) ** 2
    unseen = (of_starts + of_wander) / starts / fitted.reach() ** 2
    return replace(
        fitted,
        var_intercept=fitted.var_intercept + unseen * float(base[0]) ** 2,
        var_slope=fitted.var_slope + unseen * float(base[1]) ** 2,
        covariance=fitted.covariance + unseen * float(base[0] * base[1]),
    )


def break_even(
    reference: ContextSweep,
    arm: ContextSweep,
    *,
    users: int,
    spread: float = 0.0,
    own_users: float | None = None,
    prior_tokens: float | None = None,
) -> BreakEven | None:
    """Return the break-even set at batch size *users*, or None without three shared lengths.

    The set is restated for a batch of *own_users*. *spread* is what one start of one arm adds,
    in log units.
    """
    grids = difference_grid(reference, arm, users)
    if grids is None:
        return None
    difference, base = grids
    seen = np.isfinite(base.values).any(axis=0)
    difference = Grid(
        pairs=difference.pairs, lengths=difference.lengths[seen], values=difference.values[:, seen]
    )
    medians = np.nanmedian(base.values[:, seen], axis=0)
    fitted = line.fit(difference, medians)
    if fitted is None:
        return None
    slope, intercept = np.polyfit(difference.lengths, medians, 1, w=1 / medians)
    through = np.array([intercept, slope])
    return break_even_of_line(
        arm.arm,
        with_starts(fitted, through, spread=spread),
        first=float(difference.lengths.min()),
        last=float(difference.lengths.max()),
        users=float(users) if own_users is None else own_users,
        prior_tokens=prior_tokens,
    )


def break_even_of_line(
    arm: str,
    fitted: FittedLine,
    *,
    first: float,
    last: float,
    users: float,
    prior_tokens: float | None,
) -> BreakEven:
    """Return what the line of differences says about lengths above zero.

    Lengths from *first* to *last* were tested.
    """
    shape, low, high = _on_tested(fitted, fieller(fitted), first, last)
    tokens = None
    if shape in ("bounded", "half-line") and fitted.slope != 0:
        zero = -fitted.intercept / fitted.slope
        tokens = zero if zero > 0 else None
    slope_z = fitted.slope_z
    if not math.isfinite(slope_z):
        slope_z = math.copysign(1e9, fitted.slope)
    return BreakEven(
        arm=arm,
        shape=shape,
        tokens=tokens,
        low=low,
        high=high,
        slope_z=slope_z,
        users=users,
        own_tokens=None if tokens is None else tokens / users,
        own_low=None if low is None else low / users,
        own_high=None if high is None else high / users,
        prior_tokens=prior_tokens,
        ahead="above" if fitted.slope < 0 else "below",
        pairs=fitted.pairs,
    )


def _on_tested(
    fitted: FittedLine, found: Fieller, first: float, last: float
) -> tuple[
    Literal["bounded", "half-line", "none", "always", "unclear"], float | None, float | None
]:
    """Return shape and ends for lengths above zero; rays are judged on the tested range."""
    match found.shape:
        case "interval" if found.high < 0:
            return "always" if fitted.slope < 0 else "none", None, None
        case "interval":
            return "bounded", max(found.low, 0.0), found.high
        case "line":
            return "unclear", None, None
        case "rays":
            pass
    is_open_below = found.low >= first
    is_open_above = found.high <= last
    if is_open_below and is_open_above:
        return "unclear", None, None
    if is_open_above and found.low < first <= found.high:
        return "half-line", found.high, None
    if is_open_below and found.low <= last:
        return "half-line", None, found.low
    if is_open_above or is_open_below:
        return "unclear", None, None
    # Neither ray reaches the tested lengths: one arm is ahead at all of them.
    in_the_middle, _ = fitted.at((first + last) / 2)
    return "always" if in_the_middle < 0 else "none", None, None


def _columns(calls: Sequence[Calls]) -> tuple[Ints, Floats, Floats]:
    """Return pair, KV tokens of the batch, and time per token of the calls that have all three."""
    pairs: list[Ints] = []
    batches: list[Floats] = []
    times: list[Floats] = []
    for each in calls:
        if each.batch_kv_tokens is not None:
            pairs.append(each.pair)
            batches.append(each.batch_kv_tokens)
            times.append(np.where(each.ok, each.tpot_ms, np.nan))
    if not pairs:
        empty = np.zeros(0)
        return empty.astype(np.int64), empty, empty
    pair = np.concatenate(pairs)
    tokens = np.concatenate(batches)
    tpot = np.concatenate(times)
    is_known = np.isfinite(tokens) & np.isfinite(tpot) & (tpot > 0)
    return pair[is_known], tokens[is_known], tpot[is_known]


def _lines(pair: Ints, tokens: Floats, tpot: Floats, unit: float) -> dict[int, Floats]:
    """Return (intercept, slope) of each pair with enough calls over a wide enough span.

    Slopes are per *unit* of tokens; errors are weighed as relative ones.
    """
    names, index = np.unique(pair, return_inverse=True)
    weight = 1 / tpot**2
    x = tokens / unit

    def of_pair(term: Floats) -> Floats:
        sums = np.bincount(index, weights=weight * term)
        return np.asarray(sums, dtype=np.float64)

    s0 = of_pair(np.ones_like(x))
    s1 = of_pair(x)
    s2 = of_pair(x * x)
    sy = of_pair(tpot)
    sxy = of_pair(x * tpot)
    determinant = s0 * s2 - s1 * s1
    low = np.full(names.size, np.inf)
    high = np.full(names.size, -np.inf)
    np.minimum.at(low, index, x)
    np.maximum.at(high, index, x)
    has_calls = np.bincount(index) >= MIN_CALLS
    has_span = high >= MIN_SPAN * low
    is_good = has_calls & has_span & (determinant > 1e-12 * s0 * s2)
    lines = {}
    for i in np.flatnonzero(is_good):
        intercept = (s2[i] * sy[i] - s1[i] * sxy[i]) / determinant[i]
        slope = (s0[i] * sxy[i] - s1[i] * sy[i]) / determinant[i]
        lines[int(names[i])] = np.array([intercept, slope])
    return lines


def _kept_machines(reference: Sequence[Calls], challenger: Sequence[Calls]) -> bool:
    """Say whether the arms ran on machines of their own and never changed places.

    All starts then share what a machine adds.
    """
    own, other = (
        [each.machine for each in side if each.machine is not None]
        for side in (reference, challenger)
    )
    if not own or not other:
        return False
    shared = np.intersect1d(np.concatenate(own), np.concatenate(other))
    return not shared.size


def _start_count(
    reference: Sequence[Calls], challenger: Sequence[Calls], shared: Sequence[int]
) -> int:
    """Return how many starts of both servers the *shared* pairs ran on."""
    if _kept_machines(reference, challenger):
        return 1
    start_of_pair = []
    for each in (*reference, *challenger):
        starts = zip(each.pair.tolist(), each.restart.tolist(), strict=True)
        start_of_pair.append(dict(starts))
    together = {tuple(starts.get(pair) for starts in start_of_pair) for pair in shared}
    return len(together)


def break_even_from_calls(
    arm: str,
    reference: Sequence[Calls],
    challenger: Sequence[Calls],
    *,
    spread: float = 0.0,
    own_users: float | None = None,
    prior_tokens: float | None = None,
) -> BreakEven | None:
    """Return the break-even set of a replay, from the KV tokens of the batches it decoded in.

    None without these tokens, or with fewer than three pairs that span a range.
    """
    left, right = _columns(reference), _columns(challenger)
    if not left[0].size or not right[0].size:
        return None
    tokens = np.concatenate([left[1], right[1]])
    unit = float(tokens.max())
    base = _lines(*left, unit)
    other = _lines(*right, unit)
    shared = sorted(base.keys() & other.keys())
    if len(shared) < MIN_PAIRS:
        return None
    by_pair = np.array([other[name] - base[name] for name in shared])
    mean = by_pair.mean(axis=0)
    covariance = np.cov(by_pair.T) / len(shared)
    fitted = FittedLine(
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
    first, last = np.quantile(tokens, [0.05, 0.95]).tolist()
    through = np.mean([base[name] for name in shared], axis=0) / np.array([1.0, unit])
    starts = _start_count(reference, challenger, shared)
    widened = with_starts(fitted, through, spread=spread, starts=starts)
    return break_even_of_line(
        arm,
        widened,
        first=first,
        last=last,
        users=1.0 if own_users is None else own_users,
        prior_tokens=prior_tokens,
    )
