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
from typing import Literal, TypeAlias

import numpy as np

from advisor.estimate import present
from advisor.evidence import Calls, ContextSweep, Floats, Ints
from advisor.statistics import line
from advisor.statistics.groups import group_ends
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
    even = 2 * reference.pair[left]
    odd = 2 * arm.pair[right] + 1
    contexts = np.concatenate([reference.context_tokens[left], arm.context_tokens[right]])
    latencies = np.concatenate([reference.itl_ms[left], arm.itl_ms[right]])
    both = on_grid(np.concatenate([even, odd]), users * contexts, latencies)
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
    intercept, slope = base.tolist()
    return replace(
        fitted,
        var_intercept=fitted.var_intercept + unseen * intercept**2,
        var_slope=fitted.var_slope + unseen * slope**2,
        covariance=fitted.covariance + unseen * (intercept * slope),
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
    difference, base = (_at_seen(each, grids[1]) for each in grids)
    medians = base.medians()
    fitted = line.fit(difference, medians)
    if fitted is None:
        return None
    slope, intercept = np.polyfit(base.lengths, medians, 1, w=1 / medians)
    through = np.array([intercept, slope])
    return break_even_of_line(
        arm.arm,
        with_starts(fitted, through, spread=spread),
        first=float(base.lengths.min()),
        last=float(base.lengths.max()),
        users=float(users) if own_users is None else own_users,
        prior_tokens=prior_tokens,
    )


def _at_seen(grid: Grid, base: Grid) -> Grid:
    """Return the columns of *grid* at the lengths that *base* has values of."""
    seen = np.isfinite(base.values).any(axis=0)
    return replace(grid, lengths=grid.lengths[seen], values=grid.values[:, seen])


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

    def of_one_user(batch_tokens: float | None) -> float | None:
        return None if batch_tokens is None else batch_tokens / users

    return BreakEven(
        arm=arm,
        shape=shape,
        tokens=tokens,
        low=low,
        high=high,
        slope_z=slope_z,
        users=users,
        own_tokens=of_one_user(tokens),
        own_low=of_one_user(low),
        own_high=of_one_user(high),
        prior_tokens=prior_tokens,
        ahead="above" if fitted.slope < 0 else "below",
        pairs=fitted.pairs,
    )


_Shape: TypeAlias = Literal["bounded", "half-line", "none", "always", "unclear"]


def _on_tested(
    fitted: FittedLine, found: Fieller, first: float, last: float
) -> tuple[_Shape, float | None, float | None]:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Decodes:
    """Hold the calls of which all is known that a line through them needs."""

    pair: Ints
    tokens: Floats  # of KV, of the whole batch that the call decoded in
    tpot_ms: Floats


def _decodes(calls: Sequence[Calls]) -> _Decodes:
    """Return the calls that ended cleanly, with the KV tokens of their batches."""
    pairs = [np.zeros(0, dtype=np.int64)]
    batches = [np.zeros(0)]
    times = [np.zeros(0)]
    for each in calls:
        if each.batch_kv_tokens is not None:
            pairs.append(each.pair)
            batches.append(each.batch_kv_tokens)
            times.append(np.where(each.ok, each.tpot_ms, np.nan))
    tokens = np.concatenate(batches)
    tpot_ms = np.concatenate(times)
    is_known = np.isfinite(tokens) & np.isfinite(tpot_ms) & (tpot_ms > 0)
    pair = np.concatenate(pairs)[is_known]
    return _Decodes(pair=pair, tokens=tokens[is_known], tpot_ms=tpot_ms[is_known])


def _lines(decodes: _Decodes, unit: float) -> dict[int, Floats]:
    """Return (intercept, slope) of each pair with enough calls over a wide enough span.

    Slopes are per *unit* of tokens; errors are weighed as relative ones. The sums are those of the
    normal equations of weighted least squares.
    """
    pairs, pair = np.unique(decodes.pair, return_inverse=True)
    y = decodes.tpot_ms
    weight = 1 / y**2
    x = decodes.tokens / unit

    def sums(term: Floats) -> Floats:
        of_pair = np.bincount(pair, weights=weight * term)
        return np.asarray(of_pair, dtype=np.float64)

    s0 = sums(np.ones_like(x))
    s1 = sums(x)
    s2 = sums(x * x)
    sy = sums(y)
    sxy = sums(x * y)
    determinant = s0 * s2 - s1 * s1
    shortest, longest = group_ends(pair, x, x)
    has_calls = np.bincount(pair) >= MIN_CALLS
    has_span = longest >= MIN_SPAN * shortest
    is_good = has_calls & has_span & (determinant > 1e-12 * s0 * s2)
    with np.errstate(divide="ignore", invalid="ignore"):
        intercept = (s2 * sy - s1 * sxy) / determinant
        slope = (s0 * sxy - s1 * sy) / determinant
    lines = np.stack([intercept, slope], axis=1)
    return {int(pairs[row]): lines[row] for row in np.flatnonzero(is_good)}


def _kept_machines(reference: Sequence[Calls], challenger: Sequence[Calls]) -> bool:
    """Say whether the arms ran on machines of their own and never changed places.

    All starts then share what a machine adds.
    """
    own = present(each.machine for each in reference)
    other = present(each.machine for each in challenger)
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
    left = _decodes(reference)
    right = _decodes(challenger)
    if not left.pair.size or not right.pair.size:
        return None
    tokens = np.concatenate([left.tokens, right.tokens])
    unit = float(tokens.max())
    of_reference = _lines(left, unit)
    of_arm = _lines(right, unit)
    shared = sorted(of_reference.keys() & of_arm.keys())
    pairs = len(shared)
    if pairs < MIN_PAIRS:
        return None
    base = np.array([of_reference[pair] for pair in shared])
    differences = np.array([of_arm[pair] for pair in shared]) - base
    fitted = FittedLine.of(
        differences.mean(axis=0),
        np.cov(differences.T) / pairs,
        unit=unit,
        df=pairs - 1,
        pairs=pairs,
    )
    first, last = np.quantile(tokens, [0.05, 0.95]).tolist()
    through = base.mean(axis=0) / np.array([1.0, unit])
    starts = _start_count(reference, challenger, shared)
    return break_even_of_line(
        arm,
        with_starts(fitted, through, spread=spread, starts=starts),
        first=first,
        last=last,
        users=1.0 if own_users is None else own_users,
        prior_tokens=prior_tokens,
    )
