"""Compare two arms pair by pair: the mean log ratio of turns that ended cleanly on both.

A pair shares bytes, salt and minute, so content and slow drift cancel; pairs are
close to independent where calls are not (Abedi & Brecht 2017 for the interleaving,
Kalibera & Jones 2013 for the levels). Which half ran first, and which machine
carried which arm, enter as balanced covariates: what a second place in line or a
faster machine adds is taken out, not averaged over. `starts` knows what starts add.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.evidence import Bools, Calls, Floats, Ints
from advisor.policy import Metric
from advisor.statistics import starts
from advisor.statistics.groups import group_numbers
from advisor.statistics.spread import Spread
from advisor.statistics.starts import Draw, Pairs

MIN_PAIRS = 3  # below this Student's t is wider than any effect worth finding
MIN_FREE = 4  # residual degrees of freedom that a covariate must leave
_KEY_LIMIT = 2**62  # three numbers are packed into one int64


def _keys(columns: Sequence[Ints]) -> Ints:
    """Return one integer a row, equal where all columns are; large ids are renumbered."""
    keys = np.zeros(columns[0].size, dtype=np.int64)
    room = 1
    for column in columns:
        numbers = column - column.min()
        span = int(numbers.max()) + 1
        if span * room >= _KEY_LIMIT:
            numbers = group_numbers(column)
            span = int(numbers.max()) + 1
        keys = keys * span + numbers
        room *= span
    return keys


def same_turns(reference: Calls, arm: Calls) -> tuple[Ints, Ints]:
    """Return the row numbers of the turns that ended cleanly on both, in equal order."""
    if not reference or not arm:
        none = np.zeros(0, dtype=np.int64)
        return none, none
    columns = [
        np.concatenate([getattr(reference, name), getattr(arm, name)])
        for name in ("pair", "session", "turn")
    ]
    left, right = np.split(_keys(columns), [len(reference)])
    if left.size == right.size and np.array_equal(left, right):
        rows = np.flatnonzero(reference.ok & arm.ok)
        return rows, rows
    _, at_left, at_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    both = reference.ok[at_left] & arm.ok[at_right]
    return at_left[both], at_right[both]


def session_numbers(calls: Calls) -> Ints:
    """Return one number a row that names its session within its pair: 0, 1, … without gaps."""
    return group_numbers(_keys([calls.pair, calls.session]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairTable:
    """Hold one value a block pair: the mean log ratio, arm over reference."""

    pair: Ints
    value: Floats
    calls: Ints
    # start of the reference's server: on another machine it is another start;
    # where the arms never changed machines, the machine counts as the start
    start: Ints
    other_start: Ints  # the same of the arm's server
    order: Ints  # +1: the arm ran after the reference, -1: before
    # sign of (arm's machine - reference's machine); 0: the same machine, or not observed
    machine: Ints

    def __len__(self) -> int:
        return int(self.pair.size)


def pair_table(
    reference: Calls, arm: Calls, metric: Metric, *, rows: tuple[Ints, Ints] | None = None
) -> PairTable | None:
    """Return the pairs of *metric*, or None where no turn ended on both with that figure.

    *rows* are the matched rows, where the caller knows them already.
    """
    left, right = same_turns(reference, arm) if rows is None else rows
    theirs = getattr(reference, metric)[left]
    mine = getattr(arm, metric)[right]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(mine / theirs)
    is_known = np.isfinite(ratio)
    if not is_known.any():
        return None
    left = left[is_known]
    right = right[is_known]
    pairs, first, pair_of_row = np.unique(
        reference.pair[left], return_index=True, return_inverse=True
    )
    calls = np.bincount(pair_of_row).astype(np.int64)
    later = arm.block[right] - reference.block[left]
    start = reference.restart[left]
    other_start = arm.restart[right]
    machine = np.zeros(pairs.size, dtype=np.int64)
    if reference.machine is not None and arm.machine is not None:
        own_machine = reference.machine[left]
        other_machine = arm.machine[right]
        machine = np.sign(other_machine - own_machine)[first]
        never_swapped = abs(int(machine.sum())) == pairs.size
        if never_swapped:
            # All starts share what their machine adds, and how it wanders.
            start = own_machine
            other_start = other_machine
        else:
            start = _keys([start, own_machine])
            other_start = _keys([other_start, other_machine])
    return PairTable(
        pair=pairs,
        value=np.bincount(pair_of_row, weights=ratio[is_known]) / calls,
        calls=calls,
        start=start[first],
        other_start=other_start[first],
        order=np.sign(later)[first],
        machine=machine,
    )


def table_of_totals(
    table: PairTable, row_pair: Ints, theirs_ms: Floats, mine_ms: Floats
) -> PairTable:
    """Return the table with the log ratio of what all rows of a pair took, arm over reference.

    *row_pair* is the pair of each row.
    """
    place = np.searchsorted(table.pair, row_pair)
    theirs_total = np.bincount(place, weights=theirs_ms)
    mine_total = np.bincount(place, weights=mine_ms)
    return replace(table, value=np.log(mine_total / theirs_total))


def are_timed(theirs_ms: Floats, mine_ms: Floats) -> Bools:
    """Tell which rows have a time on both sides that is above zero."""
    is_known = np.isfinite(theirs_ms + mine_ms)
    return (theirs_ms > 0) & (mine_ms > 0) & is_known


def pairs_of(table: PairTable) -> Pairs:
    """Return the table with the covariates that it can carry.

    A covariate needs at least two pairs each way, and enough pairs left to estimate their scatter.
    """
    effect = np.ones(len(table))
    covariates: list[Floats] = []
    for covariate in (table.machine, table.order):
        fewer = min(np.sum(covariate > 0), np.sum(covariate < 0))
        design = np.stack([effect, *covariates, covariate], axis=1)
        pairs, columns = design.shape
        leaves_scatter = pairs - columns >= MIN_FREE
        if fewer >= 2 and leaves_scatter and np.linalg.matrix_rank(design) == columns:
            covariates.append(covariate.astype(np.float64))
    return Pairs(
        values=table.value,
        start=table.start,
        other_start=table.other_start,
        covariates=tuple(covariates),
    )


def of_place(table: PairTable) -> Spread | None:
    """Return what the second place in a pair adds to its log ratio; None with too few pairs.

    Where one arm leaves something behind that changes the next arm's turns, and the other does
    not, half of that is in the effect and half is here.
    """
    pairs = pairs_of(table)
    order = table.order.astype(np.float64)
    others = [each for each in pairs.covariates if not np.array_equal(each, order)]
    if len(others) == len(pairs.covariates):
        return None
    # Turned by its sign, the order is the mean, and the effect is what varies with the order.
    signed = tuple(each * order for each in others)
    turned = replace(pairs, values=pairs.values * order, covariates=(order, *signed))
    return starts.inside(turned)


def start_means(sides: tuple[Calls, Calls] | None) -> Floats:
    """Return the mean log ratio of turn times of each start, arm over reference.

    Empty without turns that ended on both *sides*.
    """
    table = None if sides is None else pair_table(*sides, "turn_ms")
    if table is None:
        return np.zeros(0)
    return starts.start_means(pairs_of(table))


def change(table: PairTable, *, scale: float, draws: tuple[Draw, ...] = ()) -> Spread | None:
    """Return the mean log ratio over pairs with its distribution; None below three pairs.

    `starts` explains *scale* and *draws*.
    """
    if len(table) < MIN_PAIRS:
        return None
    return starts.spread(pairs_of(table), scale=scale, draws=draws)


def mixture(classes: Iterable[tuple[PairTable | None, float]]) -> PairTable | None:
    """Return the pairs of a whole mix: class means, weighted by their shares.

    None where no class has enough pairs. A pair in which a class did not play gets that class's
    mean. Pairs in which it did play are scaled up for those, so that the mean scatters as much as
    without the filling.
    """
    tables = []
    shares = []
    for table, share in classes:
        if table is not None and len(table) >= MIN_PAIRS and share > 0:
            tables.append(table)
            shares.append(share)
    if not tables:
        return None
    played = np.concatenate([table.pair for table in tables])
    pairs, first = np.unique(played, return_index=True)
    total = sum(shares)
    value = np.zeros(pairs.size)
    calls = np.zeros(pairs.size, dtype=np.int64)
    for table, share in zip(tables, shares, strict=True):
        at = np.searchsorted(pairs, table.pair)
        mean = float(table.value.mean())
        weight = share / total
        deviation = weight * (table.value - mean)
        value += weight * mean
        value[at] += deviation * pairs.size / len(table)
        calls[at] += table.calls

    def first_of(name: str) -> Ints:
        """Return a column by the first class that played each pair."""
        column: Ints = np.concatenate([getattr(table, name) for table in tables])
        return column[first]

    return PairTable(
        pair=pairs,
        value=value,
        calls=calls,
        start=first_of("start"),
        other_start=first_of("other_start"),
        order=first_of("order"),
        machine=first_of("machine"),
    )
