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

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
import scipy

from advisor.evidence import Floats, Ints
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
WANDER = 0.02 * np.array([0.0, 0.35, 1.05, 1.75, 2.45])  # w, half-normal with scale 2 %
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
        ends = [np.unique(each, return_inverse=True)[1] for each in (self.start, self.other_start)]
        if np.array_equal(ends[0], ends[1]):
            return ends[0].astype(np.int64)
        size = int(ends[0].max()) + 1
        joined = np.zeros((size + int(ends[1].max()) + 1,) * 2, dtype=bool)
        joined[ends[0], size + ends[1]] = True
        labels: Ints = scipy.sparse.csgraph.connected_components(joined, directed=False)[1][
            ends[0]
        ].astype(np.int64)
        return labels

    @property
    def starts(self) -> int:
        """Count the starts, none of which shares a server's start with another."""
        return int(self.units.max()) + 1


def in_turn(pairs: Pairs) -> int | None:
    """Count the starts that *pairs* take turns on; a single start counts as 1.

    None where pairs leave starts for good, or each has its own. Pairs that return to starts move
    more often than there are others to move to, whichever pairs are missing.
    """
    starts = pairs.starts
    returns = starts == 1 or np.count_nonzero(np.diff(pairs.units)) >= starts
    return starts if starts < pairs.values.size and returns else None


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
        return np.array(
            [
                _over_starts(replace(pairs, values=each)).interval(1 - 2 * level)[1]
                for each in values.T
            ]
        )
    wider = _wider(values)
    ends = np.empty(values.shape[1])
    for width in np.unique(wider):
        taken = wider == width
        ends[taken] = _upper_ends(*_mixtures(pairs, values[:, taken], scale), level=level)
    return ends


def _is_over_starts(pairs: Pairs) -> bool:
    """Say whether the starts themselves show what they add.

    They do not where pairs take turns on them: all then share one wander.
    """
    return pairs.starts >= OWN_STARTS and in_turn(pairs) is None


def below(bounds: Floats, *, scale: float) -> Floats:
    """Return how likely what a pair of starts adds lies below each bound, by the prior."""
    if scale == 0:
        return np.asarray(bounds > 0, dtype=np.float64)
    chances: Floats = scipy.special.ndtr(bounds[:, None] / (scale * _START)) @ _START_WEIGHT
    return chances


def inside(pairs: Pairs) -> Spread:
    """Return what *pairs* say of this run alone, by Student's t over pairs.

    What another start would add is left out.
    """
    return _plain(
        pairs.values,
        np.stack([np.ones_like(pairs.values), *pairs.covariates], axis=1),
        "block pairs",
    )


def _evened(pairs: Pairs) -> Floats:
    """Return the log ratios with what order and machine add taken out."""
    design = np.stack([np.ones_like(pairs.values), *pairs.covariates], axis=1)
    evened: Floats = (
        pairs.values - design[:, 1:] @ np.linalg.lstsq(design, pairs.values, rcond=None)[0][1:]
    )
    return evened


def start_means(pairs: Pairs) -> Floats:
    """Return the mean log ratio of each start.

    Order and machine are taken out where there are enough starts to separate them.
    """
    unit = pairs.units
    values = _evened(pairs) if pairs.starts >= ENOUGH_STARTS else pairs.values
    means: Floats = np.bincount(unit, weights=values) / np.bincount(unit)
    return means


def start_draws(pairs: Pairs) -> tuple[Draw, ...]:
    """Return what each start of a control across starts showed, with its standard error.

    The scatter of pairs behind these errors is one for all starts.
    """
    unit = pairs.units
    sizes, means = np.bincount(unit), start_means(pairs)
    left = max(1, pairs.values.size - sizes.size)
    within = max(float(np.sum((pairs.values - means[unit]) ** 2)) / left, SCATTER[0] ** 2)
    return tuple(
        (float(mean), float(np.sqrt(within / size)))
        for mean, size in zip(means, sizes, strict=True)
    )


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
    unit, n = pairs.units, pairs.values.size
    values, fitted = _evened(pairs), 1 + len(pairs.covariates)
    sizes = np.bincount(unit)
    means = np.bincount(unit, weights=values) / sizes
    if (
        sizes.size == n
    ):  # each pair has starts of its own: what they add is part of how pairs scatter
        return Scatter(pair=float(values.std(ddof=fitted)), start=0.0)
    within = float(np.sum((values - means[unit]) ** 2)) / max(1, n - sizes.size - fitted + 1)
    between = (
        max(0.0, float(np.var(means, ddof=1)) - within * float(np.mean(1 / sizes)))
        if sizes.size > 1
        else 0.0
    )
    prior = max(0, ENOUGH_STARTS - sizes.size) if worth is None else worth
    start = (prior * scale**2 + (sizes.size - 1) * between) / (prior + sizes.size - 1)
    return Scatter(pair=within**0.5, start=start**0.5)


def _over_starts(pairs: Pairs) -> Spread:
    unit = pairs.units
    sizes = np.bincount(unit)
    means = [
        np.bincount(unit, weights=column) / sizes
        for column in (pairs.values, np.ones(unit.size), *pairs.covariates)
    ]
    # what was balanced within every start is gone from the means
    varied = [column for column in means[2:] if np.ptp(column) > 0]
    found = _plain(means[0], np.stack([means[1], *varied], axis=1), "starts"), inside(pairs)
    return max(found, key=lambda each: each.interval()[1] - each.interval()[0])


def _plain(values: Floats, design: Floats, unit_name: str) -> Spread:
    """Return the intercept of least squares with Student's t."""
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ (design.T @ values)
    df = values.size - design.shape[1]
    residual = values - design @ fitted
    return Spread(
        value=float(fitted[0]),
        se=float(np.sqrt(inverse[0, 0] * (residual @ residual) / df)),
        df=df,
        units=values.size,
        unit_name=unit_name,
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
    """Return columns whose products say what two pairs share of their starts' variance.

    That is all of it, half (one server's), or nothing.
    """
    sides = [np.unique(each, return_inverse=True)[1] for each in (start, other_start)]
    columns = [np.eye(int(side.max()) + 1)[side] for side in sides]
    return (
        columns[0]
        if np.array_equal(sides[0], sides[1])
        else np.concatenate(columns, axis=1) * np.sqrt(0.5)
    )


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
    shared = _shared(
        np.frombuffer(start, dtype=np.int64), np.frombuffer(other_start, dtype=np.int64)
    )
    n = shared.shape[0]
    columns = np.stack([np.ones(n), *(np.frombuffer(each) for each in covariates)], axis=1)
    fixed = columns.shape[1]
    columns = np.concatenate([columns, shared], axis=1)
    scatter = np.append(SCATTER, SCATTER[-1] * np.exp(_STEP * np.arange(1, wider + 1)))
    t2 = ((scale * _START) ** 2)[:, None, None, None]
    out = []
    for lasting in LASTING:
        values, vectors = _lags(n, lasting)
        turned = vectors.T @ columns
        variance = np.array([s**2 + w**2 * values for s, w in product(scatter, WANDER)])
        reduced = turned.T / variance[:, None, :]
        products = reduced @ turned
        own, across, within = (
            products[:, :fixed, :fixed],
            products[:, fixed:, :fixed],
            products[:, fixed:, fixed:],
        )
        # Woodbury: a start's variance only touches what its pairs share.
        inner = np.eye(shared.shape[1]) + t2 * within
        inverse = t2 * np.linalg.inv(inner)
        pulled = inverse @ across
        explained = own - across.swapaxes(-1, -2) @ pulled
        covariance = np.linalg.inv(explained)
        # The fixed effects are *left* times the reduced pairs, times their covariance.
        left = np.concatenate(
            [
                np.broadcast_to(np.eye(fixed), (*explained.shape[:2], fixed, fixed)),
                -pulled.swapaxes(-1, -2),
            ],
            axis=-1,
        )
        misfit = left.swapaxes(-1, -2) @ covariance @ left
        misfit[..., fixed:, fixed:] += inverse
        spans = (
            np.log(variance).sum(axis=1)
            + np.linalg.slogdet(inner)[1]
            + np.linalg.slogdet(explained)[1]
        )
        prior = np.log(np.tile(_WANDER_WEIGHT, scatter.size)) + np.log(_START_WEIGHT)[:, None]
        out.append(
            _Lasting(
                vectors=vectors,
                precision=1 / variance,
                reduced=reduced,
                misfit=misfit,
                effect=(covariance @ left)[..., 0, :],
                variance=covariance[..., 0, 0],
                logs=prior - 0.5 * spans,
            )
        )
    return tuple(out)


def _upper_ends(weight: Floats, centre: Floats, se: Floats, *, level: float) -> Floats:
    """Return the upper ends of the mixtures at a one-sided *level*.

    They are found by secants of the tail's probit, which is nearly straight.
    """
    mean = np.sum(weight * centre, axis=(0, 1))
    deviation = np.sqrt(np.sum(weight * (se**2 + (centre - mean) ** 2), axis=(0, 1)))
    wanted = -float(scipy.special.ndtri(level))

    def short(end: Floats) -> Floats:
        beyond: Floats = np.sum(weight * scipy.special.ndtr((centre - end) / se), axis=(0, 1))
        missing: Floats = wanted + scipy.special.ndtri(beyond)
        return missing

    before, end = mean, mean + wanted * deviation
    missed = short(before)
    for _ in range(_SECANTS):
        missing = short(end)
        step = np.divide(
            (end - before) * missing,
            missing - missed,
            out=np.zeros_like(end),
            where=missing != missed,
        )
        before, missed, end = end, missing, end - step
    found: Floats = end
    return found


def _on_grid(pairs: Pairs, scale: float, draws: tuple[Draw, ...]) -> Spread:
    weight, centre, se = (
        each[..., 0] for each in _mixtures(pairs, pairs.values[:, None], scale, draws)
    )
    kept = weight > _NEGLIGIBLE
    return Spread.mixed(
        weight[kept], centre[kept], se[kept], units=pairs.values.size, unit_name="block pairs"
    )


def _wider(values: Floats) -> Ints:
    """Return how many steps of s beyond the usual each column needs.

    The last step lies near four times what the column scatters by.
    """
    widest = 4 * values.std(axis=0)
    beyond = np.maximum(widest, SCATTER[-1]) / SCATTER[-1]
    steps = np.ceil(np.log(beyond) / _STEP) - 1
    least: Ints = np.maximum(0, steps).astype(np.int64)
    return least


def _mixtures(
    pairs: Pairs, values: Floats, scale: float, draws: tuple[Draw, ...] = ()
) -> tuple[Floats, Floats, Floats]:
    """Return weight, centre and standard error of the normals for each column of *values*.

    The columns share one design and one width.
    """
    starts = (
        np.ascontiguousarray(each, dtype=np.int64).tobytes()
        for each in (pairs.start, pairs.other_start)
    )
    covariates = tuple(
        np.ascontiguousarray(each, dtype=np.float64).tobytes() for each in pairs.covariates
    )
    normals = []
    for each in _prepared(*starts, covariates, scale, int(_wider(values).max())):
        turned = each.vectors.T @ values
        reduced = each.reduced @ turned
        explained = np.sum((each.misfit @ reduced) * reduced, axis=2)
        logs = each.logs[..., None] - 0.5 * (each.precision @ turned**2 - explained)
        centre = (each.effect[:, :, None, :] @ reduced)[:, :, 0]
        variance = np.broadcast_to(each.variance[..., None], logs.shape)
        normals.append(np.stack([logs, centre, variance]))
    logs, centre, variance = np.concatenate(normals, axis=2)
    for value, error in draws:
        of_draw = (scale * _START) ** 2 + error**2
        distance = np.log(of_draw) + value**2 / of_draw
        logs = logs - 0.5 * distance[:, None, None]
    weights = np.exp(logs - scipy.special.logsumexp(logs, axis=(0, 1)))
    return weights, centre, np.sqrt(variance)
