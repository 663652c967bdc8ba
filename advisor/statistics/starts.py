"""Estimate an effect from block pairs whose servers were started, and whose machines were chosen, only now and then.

Pairs see the noise that happens inside them. What a start or a machine adds is drawn once and shared by all its pairs, and an arm may
wander slowly: more pairs average neither. So their log ratios are y ~ N(X b, s^2 I + t^2 S + w^2 exp(-lag / l)): b holds the effect and
what order and machine add (flat), s the scatter of pairs (log-uniform), t what starts add to a ratio (half-normal; S says which pairs share
theirs), w a slow wander (none with probability one half, else half-normal) over l pairs. All four are integrated on a grid, so that what is
known of the effect is a mixture of normals with exact tails: nothing is drawn, and equal evidence gives an equal decision.

Eight starts carry their own scatter: from there on Student's t over starts needs no prior, and is never narrower than t over pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from scipy import special, stats
from scipy.sparse.csgraph import connected_components

from advisor.evidence import Floats, Ints
from advisor.statistics.spread import Spread

ENOUGH_STARTS = 8  # t over starts is then as narrow as anything that knows a prior (docs/statistics.md)
SCATTER = np.geomspace(0.003, 0.15, 18)  # s: from the quietest emulated server to three times a busy one
WANDER = 0.02 * np.array([0.0, 0.35, 1.05, 1.75, 2.45])  # w, half-normal with scale 2 %
_WANDER_WEIGHT = np.append(0.5, 0.5 * (half := stats.halfnorm.pdf(WANDER[1:] / 0.02)) / half.sum())
LASTING = (3.0, 10.0, 40.0)  # l, in pairs
_START = np.arange(0.2, 3.6, 0.4)  # t over the scale of its half-normal prior
_START_WEIGHT = stats.halfnorm.pdf(_START) / stats.halfnorm.pdf(_START).sum()
_NEGLIGIBLE = 1e-6  # weight of a normal that moves no tail


Draw = tuple[float, float]  # what two starts of one configuration differed by, log ratio, and its standard error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """Hold one log ratio a block pair, in order of time, with the starts behind it and what was balanced over the pairs."""

    values: Floats
    start: Ints  # of the reference; a machine is part of its start
    other_start: Ints  # of the arm
    covariates: tuple[Floats, ...] = ()  # +1 or -1 a pair: order, machine

    @property
    def units(self) -> Ints:
        """Return the number of the start that each pair belongs to: pairs that share a server's start are one."""
        ends = [np.unique(each, return_inverse=True)[1] for each in (self.start, self.other_start)]
        if np.array_equal(ends[0], ends[1]):
            return ends[0].astype(np.int64)
        size = int(ends[0].max()) + 1
        joined = np.zeros((size + int(ends[1].max()) + 1,) * 2, dtype=bool)
        joined[ends[0], size + ends[1]] = True
        labels: Ints = connected_components(joined, directed=False)[1][ends[0]].astype(np.int64)
        return labels

    @property
    def starts(self) -> int:
        """Count the starts that share no server's start with another."""
        return int(self.units.max()) + 1


def spread(pairs: Pairs, *, scale: float, draws: tuple[Draw, ...] = ()) -> Spread:
    """Return what *pairs* say of the effect, *scale* being that of the prior of what a start adds to a ratio.

    *draws* are differences between starts of one configuration: they tell how much a start adds, and are never taken off.
    """
    return _over_starts(pairs) if pairs.starts >= ENOUGH_STARTS else _on_grid(pairs, scale, draws)


def inside(pairs: Pairs) -> Spread:
    """Return what *pairs* say of this run alone, whatever another start would add: Student's t over pairs."""
    return _plain(pairs.values, np.stack([np.ones_like(pairs.values), *pairs.covariates], axis=1), "block pairs")


def _evened(pairs: Pairs) -> Floats:
    """Return the log ratios with what order and machine add taken out."""
    design = np.stack([np.ones_like(pairs.values), *pairs.covariates], axis=1)
    evened: Floats = pairs.values - design[:, 1:] @ np.linalg.lstsq(design, pairs.values, rcond=None)[0][1:]
    return evened


def start_means(pairs: Pairs) -> Floats:
    """Return the mean log ratio of each start; order and machine are taken out where there are starts enough to tell them apart."""
    unit = pairs.units
    values = _evened(pairs) if pairs.starts >= ENOUGH_STARTS else pairs.values
    means: Floats = np.bincount(unit, weights=values) / np.bincount(unit)
    return means


def drawn(pairs: Pairs) -> tuple[Draw, ...]:
    """Return what each start of a control across starts showed, with the scatter that all of them share."""
    unit = pairs.units
    sizes, means = np.bincount(unit), start_means(pairs)
    left = max(1, pairs.values.size - sizes.size)
    within = max(float(np.sum((pairs.values - means[unit]) ** 2)) / left, SCATTER[0] ** 2)
    return tuple((float(mean), float(np.sqrt(within / size))) for mean, size in zip(means, sizes, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Hold what a plan needs: the standard deviations of a pair's log ratio within its starts, and of what a pair of starts adds to it."""

    pair: float
    start: float


def scatter(pairs: Pairs, *, scale: float, worth: int | None = None) -> Scatter:
    """Return how pairs scatter, and how starts do: as they did, with the prior worth the starts that are missing to enough, or *worth*."""
    unit, n = pairs.units, pairs.values.size
    values, fitted = _evened(pairs), 1 + len(pairs.covariates)
    sizes = np.bincount(unit)
    means = np.bincount(unit, weights=values) / sizes
    if sizes.size == n:  # each pair has starts of its own: what they add is part of how pairs scatter
        return Scatter(pair=float(values.std(ddof=fitted)), start=0.0)
    within = float(np.sum((values - means[unit]) ** 2)) / max(1, n - sizes.size - fitted + 1)
    between = max(0.0, float(np.var(means, ddof=1)) - within * float(np.mean(1 / sizes))) if sizes.size > 1 else 0.0
    prior = max(0, ENOUGH_STARTS - sizes.size) if worth is None else worth
    start = (prior * scale**2 + (sizes.size - 1) * between) / (prior + sizes.size - 1)
    return Scatter(pair=within**0.5, start=start**0.5)


def _over_starts(pairs: Pairs) -> Spread:
    unit = pairs.units
    sizes = np.bincount(unit)
    means = [np.bincount(unit, weights=column) / sizes for column in (pairs.values, np.ones(unit.size), *pairs.covariates)]
    varied = [column for column in means[2:] if np.ptp(column) > 0]  # what was balanced within every start is gone from the means
    found = _plain(means[0], np.stack([means[1], *varied], axis=1), "starts"), inside(pairs)
    return max(found, key=lambda each: each.interval()[1] - each.interval()[0])


def _plain(values: Floats, design: Floats, unit_name: str) -> Spread:
    """Return least squares' intercept with Student's t."""
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ (design.T @ values)
    df = values.size - design.shape[1]
    residual = values - design @ fitted
    return Spread(
        value=float(fitted[0]), se=float(np.sqrt(inverse[0, 0] * (residual @ residual) / df)), df=df, units=values.size, unit_name=unit_name
    )


@lru_cache(maxsize=64)
def _lags(n: int, lasting: float) -> tuple[Floats, Floats]:
    """Return eigenvalues and vectors of the correlations of a wander over *n* pairs."""
    place = np.arange(n)
    values, vectors = np.linalg.eigh(np.exp(-np.abs(place[:, None] - place) / lasting))
    return values, vectors


def _shared(pairs: Pairs) -> Floats:
    """Return columns whose products say what two pairs share of their starts' variance: all, half (one server's), or nothing."""
    sides = [np.unique(each, return_inverse=True)[1] for each in (pairs.start, pairs.other_start)]
    same = np.array_equal(sides[0], sides[1])
    columns = [np.eye(int(side.max()) + 1)[side] for side in sides]
    return columns[0] if same else np.concatenate(columns, axis=1) * np.sqrt(0.5)


def _on_grid(pairs: Pairs, scale: float, draws: tuple[Draw, ...]) -> Spread:
    n, fixed = pairs.values.size, 1 + len(pairs.covariates)
    columns = np.stack([np.ones(n), *pairs.covariates, pairs.values], axis=1)
    columns = np.concatenate([columns, _shared(pairs)], axis=1)
    widest = max(SCATTER[-1], 4 * float(pairs.values.std()))
    scatter = np.append(SCATTER, np.exp(np.arange(np.log(SCATTER[-1]) + 0.17, np.log(widest), 0.17)))
    start = scale * _START
    normals = []
    for lasting in LASTING:
        values, vectors = _lags(n, lasting)
        turned = vectors.T @ columns
        variance = np.array([s**2 + w**2 * values for s, w in product(scatter, WANDER)])
        products = (turned.T / variance[:, None, :]) @ turned  # of all columns, by the inverse of what is no start's
        own, across = products[:, : fixed + 1, : fixed + 1], products[:, : fixed + 1, fixed + 1 :]
        within = products[:, fixed + 1 :, fixed + 1 :]
        t2 = (start**2)[:, None, None, None]
        inner = np.eye(within.shape[1]) + t2 * within
        # Woodbury: a start's variance only touches what its pairs share.
        own = own - t2 * (across @ np.linalg.solve(inner, np.repeat(across.swapaxes(1, 2)[None], start.size, axis=0)))
        precision, pulled = own[..., :fixed, :fixed], own[..., :fixed, fixed]
        fitted = np.linalg.solve(precision, pulled[..., None])[..., 0]
        misfit = own[..., fixed, fixed] - np.sum(fitted * pulled, axis=-1)
        spans = np.log(variance).sum(axis=1) + np.linalg.slogdet(inner)[1] + np.linalg.slogdet(precision)[1]
        logs = -0.5 * (spans + misfit) + np.log(np.tile(_WANDER_WEIGHT, scatter.size)) + np.log(_START_WEIGHT)[:, None]
        normals.append(np.stack([logs, fitted[..., 0], np.linalg.inv(precision)[..., 0, 0]]).reshape(3, start.size, -1))
    logs, centre, variance = np.concatenate(normals, axis=2)
    for value, error in draws:
        variance_of_draw = start**2 + error**2
        logs = logs - 0.5 * (np.log(variance_of_draw) + value**2 / variance_of_draw)[:, None]
    weight = np.exp(logs - special.logsumexp(logs))
    kept = weight > _NEGLIGIBLE
    return Spread.mixed(weight[kept], centre[kept], np.sqrt(variance[kept]), units=n, unit_name="block pairs")
