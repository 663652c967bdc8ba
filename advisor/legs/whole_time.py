"""Check the typical turn against the time of all turns together.

Where they disagree, one kind of turn wins and another loses. The mean log ratio counts every
turn alike, the total counts every second alike. A verdict on speed needs both; where they
surely disagree about the smallest change that counts, the policy has to say which of them
decides (`counts`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from advisor import words
from advisor.assess.speed import controlled_change, start_scale
from advisor.case import Case
from advisor.estimate import Estimate
from advisor.evidence import Bools, Calls, Floats, Ints
from advisor.legs.speed import more_pairs
from advisor.results import Control, Tested
from advisor.statistics import paired
from advisor.statistics.paired import PairTable
from advisor.statistics.spread import Spread
from advisor.verdict import Leg, LegState, Need

EVERY = slice(None)
# margins, and levels: the typical turn has shown the claim, the total only has to bear it out
TWICE = 2


def with_total(case: Case, arm: str, workload: str | None, typical: Tested) -> Tested:
    """Return the criterion of speed on which the typical turn and the total time agree.

    Where the policy counts one of them alone, that one decides.
    """
    leg = typical.leg
    counts = case.policy.counts
    speed = case.speed(arm, workload)
    is_settled = leg.state in ("yes", "no", "equal")
    is_asked = counts == "time" or (counts == "both" and is_settled)
    if speed is None or leg.estimate is None or not is_asked:
        return typical
    matched = tuple(_matched(case, arm, workload))
    # A control shows what a place in the order adds, and what
    # starts differ by, for single turn times and their total alike.
    totals = [(each.total(), each.share) for each in matched]
    total = _mixed(case, totals, speed.controls)
    if total is None:
        return typical
    level = case.level(arm)
    least = case.policy.min_change
    whole = _relative(total, level)
    if speed.change.overfull:
        whole = whole.as_bound(speed.mildest)
    needs = (more_pairs(case, speed),)
    if counts == "time":
        return Tested(leg=_by_time(leg, whole, least=least, needs=needs))
    # The policy counts both from here on, so they have to agree.
    if _contradicts(leg.state, whole, least):
        reason = (
            f"the typical turn {words.change(leg.estimate)}, the time of all turns "
            f"{words.change(whole)}: {_who(case, matched, level)}; "
            "set counts to turns or time in the policy to say which decides, or split"
        )
        return replace(typical, leg=replace(leg, state="unclear", reason=reason, needs=()))
    if _bears_out(leg.state, _relative(total, TWICE * level), least):
        return typical
    reason = f"{leg.reason}, but the time of all turns {words.change(whole)}"
    return replace(typical, leg=replace(leg, state="unclear", reason=reason, needs=needs))


def _contradicts(state: LegState, whole: Estimate, least: float) -> bool:
    """Say whether the total surely does not change as the typical turn does."""
    match state:
        case "yes":
            return whole.is_above(-least)
        case "no":
            return whole.is_below(least)
        case _:
            return whole.is_below(-least) or whole.is_above(least)


def _bears_out(state: LegState, near: Estimate, least: float) -> bool:
    """Say whether the total changes as the typical turn does.

    *near* is its interval at a milder level. A typical turn that is slower is harm enough.
    """
    match state:
        case "yes":
            return near.is_below(-least)
        case "no":
            return True
        case _:
            return near.is_within(TWICE * least)


def _relative(total: Spread, level: float) -> Estimate:
    """Return the relative change of the total, with its interval at a one-sided *level*."""
    method = "log ratio of the time of all turns"
    return total.relative(unit="relative", method=method, level=1 - 2 * level)


def _by_time(leg: Leg, whole: Estimate, *, least: float, needs: tuple[Need, ...]) -> Leg:
    """Return the criterion as the total alone decides it."""
    margin = max(least, leg.margin or least)
    state: LegState = "unclear"
    if whole.is_within(least):
        state = "equal"
    elif whole.is_below(-margin):
        state = "yes"
    elif whole.is_above(margin):
        state = "no"
    return replace(
        leg,
        state=state,
        estimate=whole,
        reason=f"time of all turns {words.change(whole)}",
        needs=needs if state == "unclear" else (),
    )


# --- turns of both arms ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Matched:
    """Hold the row numbers of the same turns of one class on both arms."""

    workload: str
    share: float
    reference: Calls
    arm: Calls
    left: Ints  # rows on the reference
    right: Ints  # and on the arm

    @property
    def took_ms(self) -> tuple[Floats, Floats]:
        """Return what the turns took on the reference and on the arm."""
        return self.reference.turn_ms[self.left], self.arm.turn_ms[self.right]

    def table(self, taken: Bools | slice = EVERY) -> PairTable | None:
        """Return the pairs of the turns that are *taken*."""
        rows = (self.left[taken], self.right[taken])
        return paired.pair_table(self.reference, self.arm, "turn_ms", rows=rows)

    def total(self) -> PairTable | None:
        """Return the pairs with the log ratio of the summed time of their turns."""
        table = self.table()
        if table is None:
            return None
        return paired.table_of_totals(table, self.reference.pair[self.left], *self.took_ms)


def _matched(case: Case, arm: str, workload: str | None) -> Iterator[_Matched]:
    """Yield the turns of a class, or of every class of the mix, that both arms timed."""
    for name, share in case.shares:
        sides = case.evidence.sides(name, arm)
        if workload not in (None, name) or sides is None:
            continue
        theirs, mine = sides
        left, right = paired.same_turns(theirs, mine)
        is_timed = paired.are_timed(theirs.turn_ms[left], mine.turn_ms[right])
        if is_timed.any():
            yield _Matched(
                workload=name,
                share=share,
                reference=theirs,
                arm=mine,
                left=left[is_timed],
                right=right[is_timed],
            )


def _mixed(
    case: Case, classes: Iterable[tuple[PairTable | None, float]], controls: Sequence[Control] = ()
) -> Spread | None:
    """Compare the mix of these classes; None where no pair has their turns."""
    mixed = paired.mixture(classes)
    if mixed is None:
        return None
    scale = start_scale(case.evidence, case.policy)
    return controlled_change(mixed, scale, controls, position=case.policy.position_spread)


# --- which kinds of turn differ ---


_Kind: TypeAlias = tuple[str, Spread | None]
"""Some turns in words, and how they differ; None where no pair has such turns."""


def _kinds(case: Case, matched: Sequence[_Matched]) -> Iterator[Sequence[_Kind]]:
    """Yield ways to group the turns: by class, by tokens read or written, by duration."""
    yield [(each.workload, _mixed(case, [(each.table(), 1.0)])) for each in matched]
    read = [each.reference.prompt_tokens[each.left] for each in matched]
    yield _thirds(case, matched, read, "prompts", _tokens)
    written = [each.reference.output_tokens[each.left] for each in matched]
    yield _thirds(case, matched, written, "answers", _tokens)
    took = [_seconds_of_both(*each.took_ms) for each in matched]
    yield _thirds(case, matched, took, "turns", _seconds)


def _seconds_of_both(theirs_ms: Floats, mine_ms: Floats) -> Floats:
    """Return what both arms take: a turn that is long on one of them alone is no long one."""
    mean_ms: Floats = np.sqrt(theirs_ms * mine_ms)
    return mean_ms / 1e3


def _tokens(value: float) -> str:
    return f"{words.tokens(value)} tokens"


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


def _thirds(
    case: Case,
    matched: Sequence[_Matched],
    values: Sequence[Floats],
    kind: str,
    text: Callable[[float], str],
) -> Sequence[_Kind]:
    """Compare the third of the turns with the lowest values, and that with the highest."""
    every = np.concatenate(values)
    low, high = np.nanquantile(every, (1 / 3, 2 / 3))
    lowest = []
    highest = []
    for each, own in zip(matched, values, strict=True):
        lowest.append((each.table(own <= low), each.share))
        highest.append((each.table(own > high), each.share))
    return [
        (f"{kind} up to {text(low)}", _mixed(case, lowest)),
        (f"{kind} above {text(high)}", _mixed(case, highest)),
    ]


def _who(case: Case, matched: Sequence[_Matched], level: float) -> str:
    """Say which kinds of turn differ most, and by how much."""
    kinds = max(_kinds(case, matched), key=_distance)
    changes = []
    for name, spread in kinds:
        if spread is not None:
            change = spread.relative(unit="relative", method="", level=1 - 2 * level)
            changes.append((change.value, f"{name} {words.change(change)}"))
    changes.sort(key=lambda each: each[0])
    return ", ".join(text for _, text in changes)


def _distance(kinds: Sequence[_Kind]) -> float:
    """Return how far apart the changes of some kinds of turn lie."""
    values = [spread.value for _, spread in kinds if spread is not None]
    return max(values) - min(values) if values else 0.0
