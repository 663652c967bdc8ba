"""Does the time of all turns together say what the typical turn says?

Where it does not, one kind of turn wins and another loses.

The mean log ratio counts every turn alike, the total counts every second alike.
A verdict on speed needs both; where they surely disagree about the smallest
change that counts, the policy has to say which of them does (`counts`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor import words
from advisor.assess.speed import estimated, start_scale
from advisor.case import Case, Control, Tested
from advisor.evidence import Bools, Calls, Floats, Ints
from advisor.legs.speed import more_pairs
from advisor.statistics import paired
from advisor.statistics.paired import PairTable
from advisor.statistics.spread import Spread
from advisor.verdict import LegState

EVERY = slice(None)
TWICE = (
    2  # margins, and the level: what the total has to bear out is shown by the typical turn already
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Matched:
    """Hold the row numbers of the same turns of one class on both arms."""

    workload: str
    share: float
    sides: tuple[Calls, Calls]  # reference and arm
    rows: tuple[Ints, Ints]

    def column(self, name: str, side: int = 0) -> Floats:
        """Return what the calls of a side say."""
        values: Floats = getattr(self.sides[side], name)[self.rows[side]]
        return values

    def table(self, taken: Bools | slice = EVERY) -> PairTable | None:
        """Return the pairs of the turns that are *taken*."""
        return paired.pair_table(
            *self.sides, "turn_ms", rows=(self.rows[0][taken], self.rows[1][taken])
        )

    def total(self) -> PairTable | None:
        """Return the pairs with the log ratio of the time of all their turns."""
        table = self.table()
        if table is None:
            return None
        index = np.searchsorted(table.pair, self.sides[0].pair[self.rows[0]])
        theirs, mine = (np.bincount(index, weights=self.column("turn_ms", side)) for side in (0, 1))
        return replace(table, value=np.log(mine / theirs))


def _matched(case: Case, arm: str, workload: str | None) -> Iterator[_Matched]:
    """Yield the turns of a class, or of every class of
    the mix, that ended on both arms with a turn time.
    """
    for name, share in case.shares:
        sides = case.evidence.sides(name, arm)
        if workload not in (None, name) or sides is None:
            continue
        left, right = paired.same_turns(*sides)
        both = sides[0].turn_ms[left], sides[1].turn_ms[right]
        timed = (both[0] > 0) & (both[1] > 0) & np.isfinite(both[0] + both[1])
        if timed.any():
            yield _Matched(
                workload=name, share=share, sides=sides, rows=(left[timed], right[timed])
            )


def _mixed(
    case: Case, tables: Iterable[tuple[PairTable | None, float]], controls: Sequence[Control] = ()
) -> Spread | None:
    known = [(table, share) for table, share in tables if table is not None]
    table = paired.mixed(tuple(table for table, _ in known), tuple(share for _, share in known))
    scale, position = start_scale(case.evidence, case.policy), case.policy.position_spread
    return None if table is None else estimated(table, scale, controls, position=position)


def _kinds(case: Case, matched: Sequence[_Matched]) -> Iterator[list[tuple[str, Spread | None]]]:
    """Yield ways to tell the turns apart: by class, by
    the tokens they read or write, by how long they take.
    """
    yield [(each.workload, _mixed(case, [(each.table(), 1.0)])) for each in matched]
    read, written = (
        [each.column(name) for each in matched] for name in ("prompt_tokens", "output_tokens")
    )
    # By what both arms take: a turn that is long on one of them alone is no long one.
    taken = [np.sqrt(each.column("turn_ms") * each.column("turn_ms", 1)) / 1e3 for each in matched]
    for kind, values, unit in (
        ("prompts", read, "tokens"),
        ("answers", written, "tokens"),
        ("turns", taken, "s"),
    ):
        ends = np.nanquantile(np.concatenate(values), (1 / 3, 2 / 3))
        short, long = (words.tokens(end) if unit == "tokens" else f"{end:.3g}" for end in ends)
        sides = (
            (f"{kind} up to {short} {unit}", [each <= ends[0] for each in values]),
            (f"{kind} above {long} {unit}", [each > ends[1] for each in values]),
        )
        for_each = [
            (
                name,
                [
                    (each.table(side), each.share)
                    for each, side in zip(matched, taken_of, strict=True)
                ],
            )
            for name, taken_of in sides
        ]
        yield [(name, _mixed(case, tables)) for name, tables in for_each]


def _who(case: Case, matched: Sequence[_Matched], level: float) -> str:
    """Say which kinds of turn differ most, and by how much."""
    known = [
        [(name, spread) for name, spread in kinds if spread is not None]
        for kinds in _kinds(case, matched)
    ]
    furthest = max(
        known,
        key=lambda kinds: float(np.ptp([spread.value for _, spread in kinds])) if kinds else 0.0,
    )
    told = (
        (name, spread.relative(unit="relative", method="", level=1 - 2 * level))
        for name, spread in furthest
    )
    return ", ".join(
        f"{name} {words.change(each)}"
        for name, each in sorted(told, key=lambda each: each[1].value)
    )


def with_total(case: Case, arm: str, workload: str | None, typical: Tested) -> Tested:
    """Return the verdict on speed that the typical turn and the time
    of all turns bear out together, or the one that the policy counts.
    """
    leg, counts, level, least = (
        typical.leg,
        case.policy.counts,
        case.level(arm),
        case.policy.min_change,
    )
    speed = case.speed(arm, workload)
    matched: tuple[_Matched, ...] = ()
    is_settled = leg.state in ("yes", "no", "equal")
    if (
        speed is not None
        and leg.estimate is not None
        and (counts == "time" or (counts == "both" and is_settled))
    ):
        matched = tuple(_matched(case, arm, workload))
    # What a place in the order adds, and what starts
    # differ by, a control tells of all turn times alike.
    total = _mixed(
        case,
        ((each.total(), each.share) for each in matched),
        () if speed is None else speed.controls,
    )
    if total is None or speed is None or leg.estimate is None:
        return typical
    whole, near = (
        total.relative(
            unit="relative",
            method="log ratio of the time of all turns",
            level=1 - 2 * times * level,
        )
        for times in (1, TWICE)
    )
    if speed.change.overfull:
        whole = whole.as_bound(speed.mildest)
    needs = (more_pairs(case, speed),)
    if counts == "time":
        margin = max(least, leg.margin or least)
        state: LegState = (
            "yes" if whole.is_below(-margin) else "no" if whole.is_above(margin) else "unclear"
        )
        state = "equal" if whole.is_within(least) else state
        told = f"time of all turns {words.change(whole)}"
        return Tested(
            leg=replace(
                leg,
                state=state,
                estimate=whole,
                reason=told,
                needs=needs if state == "unclear" else (),
            )
        )
    contradicts, bears = {
        "yes": (whole.is_above(-least), near.is_below(-least)),
        "no": (whole.is_below(least), True),
        "equal": (whole.is_below(-least) or whole.is_above(least), near.is_within(TWICE * least)),
    }[leg.state]
    if contradicts:
        reason = (
            f"the typical turn {words.change(leg.estimate)}, the time of all turns "
            f"{words.change(whole)}: {_who(case, matched, level)}; "
            "set counts to turns or time in the policy to say which decides, or split"
        )
        return replace(typical, leg=replace(leg, state="unclear", reason=reason, needs=()))
    if bears:
        return typical
    reason = f"{leg.reason}, but the time of all turns {words.change(whole)}"
    return replace(typical, leg=replace(leg, state="unclear", reason=reason, needs=needs))
