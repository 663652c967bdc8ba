"""Estimate an effect from block pairs that share a few starts of servers and machines.

Pairs see the noise that happens inside them. What a start or a machine adds is drawn once and
shared by all its pairs, and an arm may wander slowly: more pairs average neither. So their log
ratios are y ~ N(X b, s^2 I + t^2 S + w^2 exp(-lag / l)): b holds the effect and what order and
machine add (flat), s the scatter of pairs (log-uniform), t what starts add to a ratio (half-normal;
S says which pairs share theirs), w a slow wander (none with probability one half, else half-normal)
over l pairs. All four are integrated on a grid, so that what is known of the effect is a mixture of
normals with exact tails: nothing is drawn, and equal evidence gives an equal decision.

Five starts carry their own scatter: from there on Student's t over
starts needs no prior, and is never narrower than t over pairs.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
import scipy

from advisor.evidence import Floats, Ints
from advisor.statistics.groups import group_means, group_numbers
from advisor.statistics.spread import Spread

# with fewer pairs of starts, a mode or a trend may be a few odd starts, and more show which
SURE_PAIRS = 20
OWN_STARTS = 5  # from here on t over starts needs no prior
# t over starts is then as narrow as anything that knows a prior (docs/statistics.md)
ENOUGH_STARTS = 8


def _half_normal(values: Floats) -> Floats:
    """Return the weights of values of a half-normal, which add up to one."""
    density = np.sqrt(2 / np.pi) * np.exp(-values * values / 2)
    return density / density.sum()  # type: ignore[no-any-return]  # numpy's stubs


# s: from the quietest emulated server to three times a busy one
SCATTER = np.geomspace(0.003, 0.15, 18)
WANDER = 0.02 * np.array([0.0, 0.35, 1.05, 1.75, 2.45])  # w, half-normal with scale 2%
_WANDER_WEIGHT = np.append(0.5, 0.5 * _half_normal(WANDER[1:] / 0.02))
LASTING = (3.0, 10.0, 40.0)  # l, in pairs
_START = np.arange(0.2, 3.6, 0.4)  # t over the scale of its half-normal prior
_START_WEIGHT = _half_normal(_START)
_STEP = 0.17  # of log s, beyond the usual
_NEGLIGIBLE = 1e-6  # weight of a normal that moves no tail
_SECANTS = 4


# what two starts of one configuration differed by, log ratio, and its standard error
Draw = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """Hold one log ratio a block pair, in order of time, with its starts and covariates."""

    values: Floats
    start: Ints  # of the reference; a machine is part of its start
    other_start: Ints  # of the arm
    covariates: tuple[Floats, ...] = ()  # +1 or -1 a pair: order, machine

    @property
    def units(self) -> Ints:
        """Return the number of each pair's start.

        Pairs that share the start of either server have one number.
        """
        own = group_numbers(self.start)
        other = group_numbers(self.other_start)
        if np.array_equal(own, other):
            return own
        # Both servers' starts are the nodes of a graph, and each pair joins two of them.
        count = int(own.max()) + 1
        nodes = count + int(other.max()) + 1
        joined = np.zeros((nodes, nodes), dtype=bool)
        joined[own, count + other] = True
        _, component = scipy.sparse.csgraph.connected_components(joined, directed=False)
        return component[own].astype(np.int64)

    @property
    def starts(self) -> int:
        """Count the starts, none of which shares a server's start with another."""
        return int(self.units.max()) + 1

    @property
    def design(self) -> Floats:
        """Return the columns of a regression: the effect, then the covariates."""
        effect = np.ones_like(self.values)
        return np.stack([effect, *self.covariates], axis=1)


def in_turn(pairs: Pairs) -> int | None:
    """Count the starts that *pairs* take turns on; a single start counts as 1.

    None where pairs leave starts for good, or each has its own. Pairs that return to starts move
    more often than there are others to move to, whichever pairs are missing.
    """
    starts = pairs.starts
    if starts == pairs.values.size:
        return None
    moves = np.count_nonzero(np.diff(pairs.units))
    if starts == 1 or moves >= starts:
        return starts
    return None


def spread(pairs: Pairs, *, scale: float, draws: tuple[Draw, ...] = ()) -> Spread:
    """Return what *pairs* say of the effect.

    *scale* is that of the prior of what a start adds to a ratio. *draws* are differences between
    starts of one configuration: they tell how much a start adds, and are never subtracted.
    """
    if _is_over_starts(pairs):
        return _over_starts(pairs)
    return _on_grid(pairs, scale, draws)


def highest(pairs: Pairs, values: Floats, *, scale: float, level: float) -> Floats:
    """Return the upper end of the effect for each column of *values*, at a one-sided *level*.

    *pairs* give the design. The end is that of `spread`, to a hundredth of a percent, for many
    columns at once.
    """
    if _is_over_starts(pairs):
        ends = []
        for column in values.T:
            found = _over_starts(replace(pairs, values=column))
            _, high = found.interval(1 - 2 * level)
            ends.append(high)
        return np.array(ends)
    wider = _wider(values)
    upper = np.empty(values.shape[1])
    for width in np.unique(wider):
        columns = wider == width
        normals = _mixtures(pairs, values[:, columns], scale)
        upper[columns] = _upper_ends(*normals, level=level)
    return upper


def _is_over_starts(pairs: Pairs) -> bool:
    """Say whether the starts themselves show what they add.

    They do not where pairs take turns on them: all then share one wander.
    """
    return pairs.starts >= OWN_STARTS and in_turn(pairs) is None


def below(bounds: Floats, *, scale: float) -> Floats:
    """Return how likely what a pair of starts adds lies below each bound, by the prior."""
    if scale == 0:
        return np.asarray(bounds > 0, dtype=np.float64)
    deviations = bounds[:, None] / (scale * _START)
    return scipy.special.ndtr(deviations) @ _START_WEIGHT


def inside(pairs: Pairs) -> Spread:
    """Return what *pairs* say of this run alone, by Student's t over pairs.

    What another start would add is left out.
    """
    return _plain(pairs.values, pairs.design, "block pairs")


def _evened(pairs: Pairs) -> Floats:
    """Return the log ratios with what order and machine add taken out."""
    design = pairs.design
    fitted, *_ = np.linalg.lstsq(design, pairs.values, rcond=None)
    explained = design[:, 1:] @ fitted[1:]
    return pairs.values - explained


def start_means(pairs: Pairs) -> Floats:
    """Return the mean log ratio of each start.

    Order and machine are taken out where there are enough starts to separate them.
    """
    has_enough = pairs.starts >= ENOUGH_STARTS
    values = _evened(pairs) if has_enough else pairs.values
    return group_means(pairs.units, values)


def start_draws(pairs: Pairs) -> tuple[Draw, ...]:
    """Return what each start of a control across starts showed, with its standard error.

    The scatter of pairs behind these errors is one for all starts.
    """
    unit = pairs.units
    sizes = np.bincount(unit)
    means = start_means(pairs)
    within = _variance(pairs.values - means[unit], freedom=unit.size - sizes.size)
    variance = max(within, SCATTER[0] ** 2)
    errors = np.sqrt(variance / sizes)
    return tuple(zip(means.tolist(), errors.tolist(), strict=True))


def _variance(residuals: Floats, *, freedom: int) -> float:
    """Return the variance behind *residuals*; one degree of freedom is assumed where none is."""
    squares = np.sum(residuals**2)
    return float(squares) / max(1, freedom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Hold the standard deviations of log ratios that a plan needs.

    `pair` is that of a pair within its starts, `start` that of what a pair of starts adds.
    """

    pair: float
    start: float


def scatter(pairs: Pairs, *, scale: float, worth: int | None = None) -> Scatter:
    """Return how pairs scatter within their starts, and what starts add.

    The prior counts for as many starts as are missing to `ENOUGH_STARTS`, or for *worth*.
    """
    unit = pairs.units
    values = _evened(pairs)
    covariates = len(pairs.covariates)
    sizes = np.bincount(unit)
    starts = sizes.size
    if starts == unit.size:
        # Each pair has starts of its own: what they add is part of how pairs scatter.
        pair = float(values.std(ddof=1 + covariates))
        return Scatter(pair=pair, start=0.0)
    means = group_means(unit, values)
    within = _variance(values - means[unit], freedom=unit.size - starts - covariates)
    between = 0.0
    if starts > 1:
        # What pairs scatter by moves the means of their starts as well.
        by_chance = within * float(np.mean(1 / sizes))
        of_means = float(np.var(means, ddof=1))
        between = max(0.0, of_means - by_chance)
    prior = max(0, ENOUGH_STARTS - starts) if worth is None else worth
    seen = starts - 1
    variance = (prior * scale**2 + seen * between) / (prior + seen)
    return Scatter(pair=within**0.5, start=variance**0.5)


def _over_starts(pairs: Pairs) -> Spread:
    """Return the effect by Student's t over starts, or over pairs where that is wider."""
    unit = pairs.units
    means = group_means(unit, pairs.values)
    columns = [np.ones_like(means)]
    for covariate in pairs.covariates:
        of_starts = group_means(unit, covariate)
        # What was balanced within every start is gone from the means.
        if np.ptp(of_starts) > 0:
            columns.append(of_starts)
    design = np.stack(columns, axis=1)
    over_starts = _plain(means, design, "starts")
    over_pairs = inside(pairs)
    return max(over_starts, over_pairs, key=_width)


def _width(found: Spread) -> float:
    """Return the width of the interval."""
    low, high = found.interval()
    return high - low


def _plain(values: Floats, design: Floats, unit_name: str) -> Spread:
    """Return the first coefficient of least squares, the effect, with Student's t."""
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ (design.T @ values)
    residual = values - design @ fitted
    units, columns = design.shape
    df = units - columns
    variance = inverse[0, 0] * (residual @ residual) / df
    return Spread(
        value=float(fitted[0]), se=math.sqrt(variance), df=df, units=units, unit_name=unit_name
    )


@lru_cache(maxsize=64)
def _lags(n: int, lasting: float) -> tuple[Floats, Floats]:
    """Return eigenvalues and vectors of the correlations of a wander over *n* pairs."""
    place = np.arange(n)
    apart = np.abs(place[:, None] - place)
    correlations = np.exp(-apart / lasting)
    values, vectors = np.linalg.eigh(correlations)
    return values, vectors


def _shared(start: Ints, other_start: Ints) -> Floats:
    """Return columns Z whose products Z Z^T say what two pairs share of their starts' variance.

    That is all of it, half (one server's), or nothing.
    """
    own = _indicators(start)
    other = _indicators(other_start)
    if np.array_equal(own, other):
        return own
    halves: Floats = np.concatenate([own, other], axis=1) * np.sqrt(0.5)
    return halves


def _indicators(start: Ints) -> Floats:
    """Return one column a start: 1 in the rows of its pairs, 0 in others."""
    number = group_numbers(start)
    starts = int(number.max()) + 1
    return np.eye(starts)[number]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lasting:
    """Hold what a design says of a wander of one length, whatever its pairs show.

    Axes are t, then s and w together, then fixed effects and starts.
    """

    vectors: Floats  # that turn the pairs so that wander and scatter are independent
    precision: Floats  # s and w, pairs: of each turned pair
    reduced: Floats  # s and w, columns, pairs: fixed effects and starts, weighted
    misfit: Floats  # t, s and w, columns, columns: what fixed effects and starts explain
    effect: Floats  # t, s and w, columns: the effect, from the reduced pairs
    variance: Floats  # t, s and w: of the effect
    logs: Floats  # t, s and w: prior and determinants


@lru_cache(maxsize=64)
def _prepared(
    start: bytes, other_start: bytes, covariates: tuple[bytes, ...], scale: float, wider: int
) -> tuple[_Lasting, ...]:
    """Return the grid for a design, which all metrics of a run share.

    *wider* is the number of steps of s beyond the usual.
    """
    of_reference = np.frombuffer(start, dtype=np.int64)
    of_arm = np.frombuffer(other_start, dtype=np.int64)
    shared = _shared(of_reference, of_arm)
    effect = np.ones(len(shared))
    fixed = np.stack([effect, *map(np.frombuffer, covariates)], axis=1)
    steps = np.arange(1, wider + 1)
    beyond = SCATTER[-1] * np.exp(_STEP * steps)
    scatter = np.append(SCATTER, beyond)
    return tuple(_of_lasting(each, fixed, shared, scatter, scale=scale) for each in LASTING)


def _of_lasting(
    lasting: float, fixed: Floats, shared: Floats, scatter: Floats, *, scale: float
) -> _Lasting:
    """Return what a design says of a wander over *lasting* pairs.

    The pairs' covariance is V = D + t^2 Z Z^T once they are turned so that D, of scatter and
    wander, is diagonal; Z is *shared*. Least squares of the *fixed* effects X needs X^T V^-1 X and
    X^T V^-1 y. By Woodbury's identity both follow from products with D^-1 alone:
    V^-1 = D^-1 - D^-1 Z M Z^T D^-1, where M = t^2 (I + t^2 Z^T D^-1 Z)^-1.
    """
    pair_count, start_count = shared.shape
    effects = fixed.shape[1]
    values, vectors = _lags(pair_count, lasting)
    turned = vectors.T @ np.concatenate([fixed, shared], axis=1)
    variance = np.array([s**2 + w**2 * values for s, w in product(scatter, WANDER)])
    reduced = turned.T / variance[:, None, :]
    products = reduced @ turned
    of_fixed = products[:, :effects, :effects]
    across = products[:, effects:, :effects]
    of_starts = products[:, effects:, effects:]
    deviations = scale * _START
    t2 = (deviations**2)[:, None, None, None]
    inner = np.eye(start_count) + t2 * of_starts
    middle = t2 * np.linalg.inv(inner)
    pulled = middle @ across
    information = of_fixed - _transposed(across) @ pulled
    covariance = np.linalg.inv(information)
    # The fixed effects are *left* times the reduced pairs, times their covariance.
    identity = np.broadcast_to(np.eye(effects), information.shape)
    left = np.concatenate([identity, -_transposed(pulled)], axis=-1)
    misfit = _transposed(left) @ covariance @ left
    misfit[..., effects:, effects:] += middle
    # The log of the determinants of V and of the information; of D first, which is diagonal.
    spans = np.log(variance).sum(axis=1)
    spans = spans + np.linalg.slogdet(inner).logabsdet
    spans = spans + np.linalg.slogdet(information).logabsdet
    of_wander = np.log(np.tile(_WANDER_WEIGHT, scatter.size))
    of_start = np.log(_START_WEIGHT)[:, None]
    return _Lasting(
        vectors=vectors,
        precision=1 / variance,
        reduced=reduced,
        misfit=misfit,
        effect=(covariance @ left)[..., 0, :],
        variance=covariance[..., 0, 0],
        logs=of_wander + of_start - 0.5 * spans,
    )


def _transposed(matrices: Floats) -> Floats:
    return matrices.swapaxes(-1, -2)


def _upper_ends(weight: Floats, centre: Floats, se: Floats, *, level: float) -> Floats:
    """Return the upper ends of the mixtures at a one-sided *level*.

    They are found by secants of the tail's probit, which is nearly straight.
    """

    def weighted(values: Floats) -> Floats:
        """Return the mean of *values* over the normals of each mixture."""
        mean: Floats = np.sum(weight * values, axis=(0, 1))
        return mean

    def short(end: Floats) -> Floats:
        """Return how far the probit of the tail above *end* is from the one wanted."""
        tail = weighted(scipy.special.ndtr((centre - end) / se))
        return wanted + scipy.special.ndtri(tail)

    mean = weighted(centre)
    deviation = np.sqrt(weighted(se**2 + (centre - mean) ** 2))
    wanted = -float(scipy.special.ndtri(level))
    before = mean
    end = mean + wanted * deviation
    missed = short(before)
    for _ in range(_SECANTS):
        missing = short(end)
        # Where both ends miss alike, the end is found.
        step = np.divide(
            (end - before) * missing,
            missing - missed,
            out=np.zeros_like(end),
            where=missing != missed,
        )
        before, missed = end, missing
        end = end - step
    return end


def _on_grid(pairs: Pairs, scale: float, draws: tuple[Draw, ...]) -> Spread:
    """Return the effect as a mixture of normals."""
    mixtures = _mixtures(pairs, pairs.values[:, None], scale, draws)
    weight, centre, se = (column[..., 0] for column in mixtures)
    counts = weight > _NEGLIGIBLE
    return Spread.mixed(
        weight[counts], centre[counts], se[counts], units=pairs.values.size, unit_name="block pairs"
    )


def _wider(values: Floats) -> Ints:
    """Return how many steps of s beyond the usual each column needs.

    The last step lies near four times what the column scatters by.
    """
    usual = SCATTER[-1]
    widest = np.maximum(4 * values.std(axis=0), usual)
    steps = np.ceil(np.log(widest / usual) / _STEP) - 1
    least: Ints = np.maximum(0, steps).astype(np.int64)
    return least


def _mixtures(
    pairs: Pairs, values: Floats, scale: float, draws: tuple[Draw, ...] = ()
) -> tuple[Floats, Floats, Floats]:
    """Return weight, centre and standard error of the normals for each column of *values*.

    The columns share one design and one width.
    """
    grids = _prepared(
        pairs.start.astype(np.int64).tobytes(),
        pairs.other_start.astype(np.int64).tobytes(),
        tuple(each.astype(np.float64).tobytes() for each in pairs.covariates),
        scale,
        int(_wider(values).max()),
    )
    normals = []
    for each in grids:
        turned = each.vectors.T @ values
        reduced = each.reduced @ turned
        explained = np.sum((each.misfit @ reduced) * reduced, axis=2)
        unexplained = each.precision @ turned**2 - explained
        logs = each.logs[..., None] - 0.5 * unexplained
        centre = (each.effect[:, :, None, :] @ reduced)[:, :, 0]
        variance = np.broadcast_to(each.variance[..., None], logs.shape)
        normals.append(np.stack([logs, centre, variance]))
    logs, centre, variance = np.concatenate(normals, axis=2)
    for value, error in draws:
        of_draw = (scale * _START) ** 2 + error**2
        distance = np.log(of_draw) + value**2 / of_draw
        logs = logs - 0.5 * distance[:, None, None]
    total = scipy.special.logsumexp(logs, axis=(0, 1))
    weight = np.exp(logs - total)
    return weight, centre, np.sqrt(variance)
