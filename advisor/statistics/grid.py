"""Lay observations of a sweep on a grid: one row a block pair, one column a length, the median in each cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.evidence import Floats, Ints

SAME_LENGTH = 0.02  # lengths within 2 % of their neighbour are one planned length; template tokens differ by a few


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Hold medians by block pair (rows) and length (columns); NaN where a cell is empty."""

    pairs: Ints
    lengths: Floats
    values: Floats

    def medians(self) -> Floats:
        """Return the median over pairs at each length."""
        out: Floats = np.nanmedian(self.values, axis=0)
        return out


def length_index(lengths: Floats) -> tuple[Ints, Floats]:
    """Return the column of each row and the mean length of each column."""
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    steps = np.diff(ordered) > SAME_LENGTH * np.maximum(ordered[:-1], 1.0)
    index = np.empty(lengths.size, dtype=np.int64)
    index[order] = np.concatenate([[0], np.cumsum(steps)])
    return index, np.bincount(index, weights=lengths) / np.bincount(index)


def cell_medians(index: Ints, values: Floats) -> Floats:
    """Return the median of *values* in each group of *index* (0, 1, …, none empty)."""
    order = np.lexsort((values, index))
    counts = np.bincount(index)
    first = np.cumsum(counts) - counts
    ordered = values[order]
    middle: Floats = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) / 2
    return middle


def on_grid(pair: Ints, lengths: Floats, values: Floats) -> Grid:
    """Return the grid of *values*; rows that are not finite are left out."""
    seen = np.isfinite(values) & np.isfinite(lengths)
    pairs, row = np.unique(pair[seen], return_inverse=True)
    column, centres = length_index(lengths[seen])
    cells, index = np.unique(row * centres.size + column, return_inverse=True)
    table = np.full(pairs.size * centres.size, np.nan)
    table[cells] = cell_medians(index, values[seen])
    return Grid(pairs=pairs, lengths=centres, values=table.reshape(pairs.size, centres.size))
