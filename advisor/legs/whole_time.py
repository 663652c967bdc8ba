"""Does the time of all turns together say what the typical turn says? Where it does not, one kind of turn wins and another loses.

The mean log ratio counts every turn alike, the total counts every second alike. A verdict on speed needs both; where they surely disagree
about the smallest change that counts, the policy has to say which of them does (`counts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log1p

import numpy as np

from advisor import words
from advisor.case import Case
from advisor.evidence import Bools, Calls, Floats
from advisor.legs.speed import more_pairs
from advisor.legs.tested import Tested
from advisor.statistics import paired
from advisor.statistics.paired import PairTable
from advisor.statistics.resampling import Spread
from advisor.verdict import LegState, Need

TWICE = 2  # margins, and the level: what the total has to bear out is shown by the typical turn already


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Matched:
    """Hold the same turns of one class on both arms."""

    workload: str
    share: float
    reference: Calls
    arm: Calls

    def column(self, name: str) -> Floats:
        """Return what the reference's calls say."""
        values: Floats = getattr(self.reference, name)
        return values

    def table(self, taken: Bools | None = None) -> PairTable | None:
        """Return the pairs of the turns that are *taken*."""
        rows = np.arange(len(self.reference)) if taken is None else np.flatnonzero(taken)
        return paired.pair_table(self.reference, self.arm, "turn_ms", rows=(rows, rows))


def _matched(case: Case, arm: str, workload: str | None) -> tuple[_Matched, ...]:
    """Return the turns of a class, or of every class of the mix, that ended on both arms with a turn time."""
    out = []
    for name, share in case.shares:
        reference, calls = case.evidence.calls(name, case.evidence.reference), case.evidence.calls(name, arm)
        if workload not in (None, name) or reference is None or calls is None:
            continue
        left, right = paired.same_turns(reference, calls)
        timed = (reference.turn_ms[left] > 0) & (calls.turn_ms[right] > 0) & np.isfinite(reference.turn_ms[left] + calls.turn_ms[right])
        both = [each.rows(rows) for each, rows in ((reference, left[timed]), (calls, right[timed]))]
        out.append(_Matched(workload=name, share=share, reference=both[0], arm=both[1]))
    return tuple(each for each in out if len(each.reference))


def _spread(tables: Sequence[tuple[PairTable, float]]) -> Spread | None:
    if len(tables) == 1:
        return paired.change(tables[0][0])
    return paired.mixed_change(tuple(table for table, _ in tables), tuple(share for _, share in tables))


def _total(matched: Sequence[_Matched]) -> Spread | None:
    """Return how the time of all turns of a pair changes, as a log ratio."""
    tables = []
    for each in matched:
        table = each.table()
        if table is not None:
            index = np.searchsorted(table.pair, each.reference.pair)
            sums = [np.bincount(index, weights=calls.turn_ms) for calls in (each.reference, each.arm)]
            tables.append((replace(table, value=np.log(sums[1] / sums[0])), each.share))
    return _spread(tables) if tables else None


def _parts(matched: Sequence[_Matched]) -> Iterator[list[tuple[str, Spread]]]:
    """Yield ways to tell the turns apart: by class, by the tokens they read or write, by how long they take."""
    found = ((each.workload, _spread([(table, 1.0)])) for each in matched if (table := each.table()) is not None)
    yield [(name, spread) for name, spread in found if spread is not None]
    # By what both arms take: a turn that is long on one of them alone is no long one.
    taken = [np.sqrt(each.reference.turn_ms * each.arm.turn_ms) / 1e3 for each in matched]
    for kind, unit, values in (
        ("prompts", "tokens", [each.column("prompt_tokens") for each in matched]),
        ("answers", "tokens", [each.column("output_tokens") for each in matched]),
        ("turns", "s", taken),
    ):
        every = np.concatenate(values)
        short, long = np.nanquantile(every, (1 / 3, 2 / 3))
        if not short < long:
            continue
        ends = (f"{kind} up to {short:,.3g} {unit}", [each <= short for each in values])
        beyond = (f"{kind} above {long:,.3g} {unit}", [each > long for each in values])
        told = []
        for name, sides in (ends, beyond):
            tables = [(table, each.share) for each, side in zip(matched, sides, strict=True) if (table := each.table(side)) is not None]
            spread = _spread(tables) if tables else None
            told += [] if spread is None else [(name, spread)]
        yield told


def _change(spread: Spread, level: float) -> str:
    return words.change(spread.relative(unit="relative", method="mean log ratio of the same turns", level=1 - 2 * level))


def _who(matched: Sequence[_Matched], level: float) -> str:
    """Say which kinds of turn differ most, and by how much."""

    def apart(parts: list[tuple[str, Spread]]) -> float:
        values = [spread.value for _, spread in parts]
        return max(values) - min(values) if len(values) > 1 else 0.0

    parts = max(_parts(matched), key=apart)
    return ", ".join(f"{name} {_change(spread, level)}" for name, spread in sorted(parts, key=lambda each: each[1].value))


def with_total(case: Case, arm: str, workload: str | None, typical: Tested) -> Tested:
    """Return the verdict on speed that the typical turn and the time of all turns bear out together."""
    leg, counts, level = typical.leg, case.policy.counts, case.level(arm)
    speed = case.speed(arm, workload)
    if speed is None or leg.estimate is None or counts == "turns" or (leg.state not in ("yes", "no", "equal") and counts != "time"):
        return typical
    matched = _matched(case, arm, workload)
    total = _total(matched)
    if total is None:
        return typical
    margin, least = leg.margin or case.policy.min_change, case.policy.min_change
    whole = total.relative(unit="relative", method="log ratio of the time of all turns", level=1 - 2 * level)
    more: tuple[Need, ...] = (more_pairs(case, replace(speed, spread=total)),)
    if counts == "time":
        state: LegState = "unclear"
        if whole.is_below(-margin) or whole.is_above(margin):
            state = "yes" if whole.is_below(0) else "no"
        elif whole.is_within(least):
            state = "equal"
        told = f"time of all turns {words.change(whole)}"
        p_for, p_against = total.p_below(log1p(-margin)), total.p_above(log1p(margin))
        decided = replace(leg, state=state, estimate=whole, reason=told, needs=more if state == "unclear" else ())
        return Tested(leg=decided, p_for=p_for, p_against=p_against, if_unclear=more)
    low, high = whole.low or 0.0, whole.high or 0.0
    against = {"yes": low > -least, "no": high < least, "equal": high < -least or low > least}[leg.state]
    if against:
        reason = (
            f"the typical turn {words.change(leg.estimate)}, the time of all turns {words.change(whole)}: {_who(matched, level)}; "
            "set counts to turns or time in the policy to say which decides, or split"
        )
        return replace(typical, leg=replace(leg, state="unclear", reason=reason, needs=()))
    near = total.relative(unit="relative", method="", level=1 - 2 * TWICE * level)
    borne = {"yes": near.is_below(-least), "no": True, "equal": near.is_within(TWICE * least)}[leg.state]
    if borne:
        return typical
    reason = f"{leg.reason}, but the time of all turns {words.change(whole)}"
    return replace(typical, leg=replace(leg, state="unclear", reason=reason, needs=more))
