"""Number groups of rows (sessions, blocks, pairs), and say one thing of each group's rows."""

import numpy as np

from advisor.evidence import Floats, Ints


def group_numbers(names: Ints) -> Ints:
    """Return the number of each row's group: 0, 1, … without gaps, as the *names* rise."""
    numbers = np.unique(names, return_inverse=True)[1]
    return numbers.astype(np.int64, copy=False)


def group_means(group: Ints, values: Floats) -> Floats:
    """Return the mean of *values* in each group (0, 1, …, none empty)."""
    return np.bincount(group, weights=values) / np.bincount(group)


def group_medians(group: Ints, values: Floats) -> Floats:
    """Return the median of *values* in each group (0, 1, …, none empty)."""
    order = np.lexsort((values, group))
    rising = values[order]
    counts = np.bincount(group)
    first = np.cumsum(counts) - counts
    # Of an odd count both are the one in the middle.
    lower = rising[first + (counts - 1) // 2]
    upper = rising[first + counts // 2]
    middle: Floats = (lower + upper) / 2
    return middle


def group_ends(group: Ints, start: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return the least *start* and the largest *end* in each group (0, 1, …, none empty)."""
    groups = np.bincount(group).size
    first = np.full(groups, np.inf)
    last = np.full(groups, -np.inf)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last
