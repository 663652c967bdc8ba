"""Find the rows of two arms that are the same turn, so that each difference is taken on the same bytes."""

from __future__ import annotations

import numpy as np

from advisor.evidence import Calls, Ints

_KEY_LIMIT = 2**62  # three numbers are packed into one int64


def _packed(left: Calls, right: Calls) -> tuple[Ints, Ints]:
    """Return one integer key a row; ids of any size are renumbered first."""
    keys = np.zeros(len(left) + len(right), dtype=np.int64)
    room = 1
    for name in ("pair", "session", "turn"):
        column = np.concatenate([getattr(left, name), getattr(right, name)])
        low, high = int(column.min()), int(column.max())
        if (high - low + 1) * room >= _KEY_LIMIT:
            _, column = np.unique(column, return_inverse=True)
            low, high = 0, int(column.max())
        keys = keys * (high - low + 1) + (column - low)
        room *= high - low + 1
    return keys[: len(left)], keys[len(left) :]


def same_turns(reference: Calls, arm: Calls) -> tuple[Ints, Ints]:
    """Return the row numbers of the turns that ended cleanly on both, in equal order."""
    if not len(reference) or not len(arm):
        none = np.zeros(0, dtype=np.int64)
        return none, none
    left, right = _packed(reference, arm)
    if left.size == right.size and np.array_equal(left, right):
        rows = np.flatnonzero(reference.ok & arm.ok)
        return rows, rows
    _, at_left, at_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    both = reference.ok[at_left] & arm.ok[at_right]
    return at_left[both], at_right[both]


def session_numbers(calls: Calls) -> Ints:
    """Return one number a row that names its session within its pair: 0, 1, … without gaps."""
    low, high = int(calls.session.min()), int(calls.session.max())
    first, last = int(calls.pair.min()), int(calls.pair.max())
    width = high - low + 1
    if width * (last - first + 1) < _KEY_LIMIT:
        key = (calls.pair - first) * width + (calls.session - low)
    else:
        _, session = np.unique(calls.session, return_inverse=True)
        key = (calls.pair - first) * (int(session.max()) + 1) + session
    numbers: Ints = np.unique(key, return_inverse=True)[1].astype(np.int64, copy=False)
    return numbers
