"""Compare two arms block pair by block pair: the mean log ratio over the turns that ended cleanly on both.

A pair shares bytes, salt and minute, so content and slow drift cancel; pairs are close to independent where calls are not (Abedi & Brecht
2017 for the interleaving, Kalibera & Jones 2013 for the levels). Which half ran first, and which machine carried which arm, enter as
balanced covariates: what a second place in line or a faster machine adds is taken out, not averaged over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from advisor.evidence import Calls, Floats, Ints
from advisor.statistics import resampling
from advisor.statistics.resampling import Spread

Metric = Literal["ttft_ms", "tpot_ms", "turn_ms"]

MIN_PAIRS = 3  # below this Student's t is wider than any effect worth finding
MIN_FREE = 4  # residual degrees of freedom that a covariate must leave
_KEY_LIMIT = 2**62  # three numbers are packed into one int64


def _keys(columns: Sequence[Ints]) -> Ints:
    """Return one integer a row, equal where all columns are; ids of any size are renumbered first."""
    keys, room = np.zeros(columns[0].size, dtype=np.int64), 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if (high - low + 1) * room >= _KEY_LIMIT:
            _, column = np.unique(column, return_inverse=True)  # noqa: PLW2901  # the same column, with smaller numbers
            low, high = 0, int(column.max())
        keys = keys * (high - low + 1) + (column - low)
        room *= high - low + 1
    return keys


def same_turns(reference: Calls, arm: Calls) -> tuple[Ints, Ints]:
    """Return the row numbers of the turns that ended cleanly on both, in equal order."""
    if not len(reference) or not len(arm):
        none = np.zeros(0, dtype=np.int64)
        return none, none
    columns = [np.concatenate([getattr(reference, name), getattr(arm, name)]) for name in ("pair", "session", "turn")]
    left, right = np.split(_keys(columns), [len(reference)])
    if left.size == right.size and np.array_equal(left, right):
        rows = np.flatnonzero(reference.ok & arm.ok)
        return rows, rows
    _, at_left, at_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    both = reference.ok[at_left] & arm.ok[at_right]
    return at_left[both], at_right[both]


def session_numbers(calls: Calls) -> Ints:
    """Return one number a row that names its session within its pair: 0, 1, … without gaps."""
    numbers: Ints = np.unique(_keys([calls.pair, calls.session]), return_inverse=True)[1].astype(np.int64, copy=False)
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairTable:
    """Hold one value a block pair: the mean log ratio, arm over reference."""

    pair: Ints
    value: Floats
    calls: Ints
    restart: Ints
    order: Ints  # +1: the arm ran after the reference, -1: before
    machine: Ints  # sign of (arm's machine - reference's machine); 0: the same machine, or not observed

    def __len__(self) -> int:
        return int(self.pair.size)


def _first_of(index: Ints, column: Ints, groups: int) -> Ints:
    """Return the column's value at each group's first row."""
    first = np.full(groups, -1, dtype=np.int64)
    first[index[::-1]] = np.arange(index.size)[::-1]
    return column[first]


def pair_table(reference: Calls, arm: Calls, metric: Metric, *, rows: tuple[Ints, Ints] | None = None) -> PairTable | None:
    """Return the pairs of *metric*, or None when no turn ended on both arms with that figure; *rows* are matched rows known already."""
    left, right = same_turns(reference, arm) if rows is None else rows
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(getattr(arm, metric)[right] / getattr(reference, metric)[left])
    keep = np.isfinite(ratio)
    if not keep.any():
        return None
    left, right, ratio = left[keep], right[keep], ratio[keep]
    pairs, index = np.unique(reference.pair[left], return_inverse=True)
    counts = np.bincount(index)
    place = _first_of(index, arm.block[right] - reference.block[left], len(pairs))
    machine = np.zeros(len(pairs), dtype=np.int64)
    if reference.machine is not None and arm.machine is not None:
        machine = np.sign(_first_of(index, arm.machine[right] - reference.machine[left], len(pairs)))
    return PairTable(
        pair=pairs,
        value=np.bincount(index, weights=ratio) / counts,
        calls=counts.astype(np.int64),
        restart=_first_of(index, reference.restart[left], len(pairs)),
        order=np.sign(place),
        machine=machine,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Balanced:
    """Hold pair values with order and machine taken out, and what that cost."""

    values: Floats
    lost: int  # degrees of freedom, 1 for the mean
    lost_between_restarts: int  # of them, those that a machine's change of restarts carries


def balanced(table: PairTable) -> Balanced:
    """Return the pair values with order and machine taken out.

    Their mean is the least-squares intercept: the effect midway between the two places and the two machines.
    """
    columns, by_machine = [np.ones(len(table))], 0
    for covariate in (table.machine, table.order):
        both_ways = min(int(np.sum(covariate > 0)), int(np.sum(covariate < 0))) >= 2
        if both_ways and len(table) - len(columns) - 1 >= MIN_FREE:
            columns.append(covariate.astype(np.float64))
            by_machine += covariate is table.machine
    design = np.stack(columns, axis=1)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        design = design[:, :-1]
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ (design.T @ table.value)
    unevenness = float(np.sqrt(len(table) * inverse[0, 0]))  # an uneven draw of orders costs precision
    values = fitted[0] + unevenness * (table.value - design @ fitted)
    return Balanced(values=values, lost=design.shape[1], lost_between_restarts=1 + by_machine)


def change(table: PairTable) -> Spread | None:
    """Return the mean log ratio over pairs with its sampling distribution, or None with fewer than three pairs."""
    if len(table) < MIN_PAIRS:
        return None
    even = balanced(table)
    value = float(even.values.mean())
    if resampling.restarts_differ(even.values, table.restart, lost=even.lost_between_restarts):
        groups = len(np.unique(table.restart))
        weights = resampling.draw_weights(len(table), table.restart)
        drawn = weights @ even.values / weights.sum(axis=1)
        return resampling.spread(value, drawn, units=groups, lost=even.lost_between_restarts, unit_name="restarts")
    weights = resampling.draw_weights(len(table))
    return resampling.spread(value, weights @ even.values / len(table), units=len(table), lost=even.lost)


def mixed_change(tables: tuple[PairTable, ...], shares: tuple[float, ...]) -> Spread | None:
    """Return the change of a whole mix: class means weighted by *shares*, all classes of a pair drawn together."""
    known = [(table, share) for table, share in zip(tables, shares, strict=True) if len(table) >= MIN_PAIRS and share > 0]
    if not known:
        return None
    pairs = np.unique(np.concatenate([table.pair for table, _ in known]))
    restart = np.zeros(pairs.size, dtype=np.int64)
    total = sum(share for _, share in known)
    adjusted = []
    lost = between = 1
    for table, share in known:
        even = balanced(table)
        at = np.searchsorted(pairs, table.pair)
        row, present = np.zeros(pairs.size), np.zeros(pairs.size)
        row[at], present[at], restart[at] = even.values, 1.0, table.restart
        adjusted.append((row, present, share / total))
        lost, between = max(lost, even.lost), max(between, even.lost_between_restarts)
    joint = sum((share * row for row, _, share in adjusted), start=np.zeros(pairs.size))
    complete = np.all([present > 0 for _, present, _ in adjusted], axis=0)
    by_restart = bool(complete.any()) and resampling.restarts_differ(joint[complete], restart[complete], lost=between)
    weights = resampling.draw_weights(pairs.size, restart if by_restart else None)
    value, drawn = 0.0, np.zeros(len(weights))
    with np.errstate(invalid="ignore", divide="ignore"):
        for row, present, share in adjusted:
            value += share * float(row.sum() / present.sum())
            drawn += share * (weights @ row) / (weights @ present)
    if by_restart:
        return resampling.spread(value, drawn, units=len(np.unique(restart)), lost=between, unit_name="restarts")
    units = min(int(present.sum()) for _, present, _ in adjusted)
    return resampling.spread(value, drawn, units=units, lost=lost)
